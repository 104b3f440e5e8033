/* The part of HIP that the runtime calls, declared here so that a build needs no ROCm. */
#ifndef TILEC_HIP_API_H_
#define TILEC_HIP_API_H_
#include <stddef.h>
#include <stdint.h>

typedef int hipError;
typedef struct ihipStream* hipStream;
typedef struct ihipModule* hipModule;
typedef struct ihipFunction* hipFunction;

enum { HIP_OK = 0, HIP_CAPTURE_IMPLICIT = 906 };
enum { HIP_CAPTURE_NONE = 0, HIP_CAPTURE_MODE_RELAXED = 2 };

/* Where two versions of hipDeviceProp_t have what the runtime reads: R0600 is of ROCm 6 on. Both are shorter
 * than the room that is given to them. */
enum { HIP_PROPERTIES_ROOM = 4096 };
typedef struct hip_layout {
  const char* symbol;
  size_t units, arch;
} hip_layout;
static const hip_layout hip_layouts[] = {{"hipGetDevicePropertiesR0600", 388, 1160},
                                         {"hipGetDeviceProperties", 336, 396}};

/* X(member of hip_api, symbol, parameters) */
#define HIP_FUNCTIONS(X)                                                                                   \
  X(init, hipInit, (unsigned))                                                                             \
  X(device_count, hipGetDeviceCount, (int*))                                                               \
  X(current, hipGetDevice, (int*))                                                                         \
  X(select, hipSetDevice, (int))                                                                           \
  X(module_load, hipModuleLoadData, (hipModule*, const void*))                                             \
  X(module_function, hipModuleGetFunction, (hipFunction*, hipModule, const char*))                         \
  X(exchange_capture_mode, hipThreadExchangeStreamCaptureMode, (int*))                                     \
  X(stream_is_capturing, hipStreamIsCapturing, (hipStream, int*))                                          \
  X(launch, hipModuleLaunchKernel,                                                                         \
    (hipFunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, hipStream, void**, \
     void**))

typedef struct hip_api {
#define X(member, symbol, parameters) hipError(*member) parameters;
  HIP_FUNCTIONS(X)
#undef X
  hipError (*properties)(void*, int);
  const hip_layout* layout; /* of what `properties` writes */
  const char* (*error_name)(hipError);
} hip_api;

#endif
