/* The part of the CUDA driver API that the runtime calls, declared here so that a build needs no CUDA
 * headers. The layouts are those of the driver's stable ABI. */
#ifndef TILEC_CUDA_API_H_
#define TILEC_CUDA_API_H_
#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef struct CUctx_st* CUcontext;
typedef struct CUstream_st* CUstream;
typedef struct CUlib_st* CUlibrary;
typedef struct CUkern_st* CUkernel;
typedef struct CUfunc_st* CUfunction; /* a CUkernel may be passed for one */

enum {
  CUDA_OK = 0,
  CUDA_INVALID_VALUE = 1,
  CUDA_INVALID_CONTEXT = 201,
  CUDA_UNSUPPORTED_PTX_VERSION = 222,
  CUDA_INVALID_HANDLE = 400,
  CUDA_CONTEXT_IS_DESTROYED = 709,
  CUDA_CAPTURE_IMPLICIT = 906
};
enum { CU_ATTRIBUTE_MULTIPROCESSORS = 16, CU_ATTRIBUTE_MAJOR = 75, CU_ATTRIBUTE_MINOR = 76 };
enum { CU_KERNEL_MAX_DYNAMIC_SHARED = 8 };
enum { CU_LAUNCH_COOPERATIVE = 2, CU_LAUNCH_CLUSTER_DIMENSION = 4, CU_LAUNCH_PROGRAMMATIC = 6 };
enum { MAX_LAUNCH_ATTRIBUTES = 3 };
enum { CU_MAP_NO_INTERLEAVE = 0, CU_MAP_PROMOTE_128B = 2, CU_MAP_FILL_ZERO = 0, CU_MAP_BYTES = 128 };
enum { CU_STREAM_PER_THREAD = 2 }; /* up to here handles are names of streams that every context has */
enum { CU_CAPTURE_NONE = 0, CU_CAPTURE_MODE_RELAXED = 2 };

typedef struct CUlaunchAttribute {
  int id;
  char pad[4];
  union {
    char bytes[64];
    struct {
      unsigned x, y, z;
    } cluster;
    int programmatic;
    int cooperative;
  } value;
} CUlaunchAttribute;

typedef struct CUlaunchConfig {
  unsigned grid[3], block[3], shared_bytes;
  CUstream stream;
  CUlaunchAttribute* attributes;
  unsigned num_attributes;
} CUlaunchConfig;

_Static_assert(sizeof(CUlaunchAttribute) == 72, "CUlaunchAttribute");
_Static_assert(sizeof(CUlaunchConfig) == 56, "CUlaunchConfig");

/* X(name in the table, symbol, parameters): all return a CUresult. */
#define CUDA_FUNCTIONS(X)                                                                                  \
  X(init, cuInit, (unsigned))                                                                              \
  X(driver_version, cuDriverGetVersion, (int*))                                                            \
  X(error_name, cuGetErrorName, (CUresult, const char**))                                                  \
  X(error_string, cuGetErrorString, (CUresult, const char**))                                              \
  X(device_count, cuDeviceGetCount, (int*))                                                                \
  X(device_get, cuDeviceGet, (CUdevice*, int))                                                             \
  X(device_attribute, cuDeviceGetAttribute, (int*, int, CUdevice))                                         \
  X(primary_state, cuDevicePrimaryCtxGetState, (CUdevice, unsigned*, int*))                                \
  X(primary_retain, cuDevicePrimaryCtxRetain, (CUcontext*, CUdevice))                                      \
  X(context_current, cuCtxGetCurrent, (CUcontext*))                                                        \
  X(context_device, cuCtxGetDevice, (CUdevice*))                                                           \
  X(context_push, cuCtxPushCurrent_v2, (CUcontext))                                                        \
  X(context_pop, cuCtxPopCurrent_v2, (CUcontext*))                                                         \
  X(stream_context, cuStreamGetCtx, (CUstream, CUcontext*))                                                \
  X(stream_is_capturing, cuStreamIsCapturing, (CUstream, int*))                                            \
  X(exchange_capture_mode, cuThreadExchangeStreamCaptureMode, (int*))                                      \
  X(library_load, cuLibraryLoadData,                                                                       \
    (CUlibrary*, const void*, int*, void**, unsigned, int*, void**, unsigned))                             \
  X(library_kernel, cuLibraryGetKernel, (CUkernel*, CUlibrary, const char*))                               \
  X(kernel_set_attribute, cuKernelSetAttribute, (int, int, CUkernel, CUdevice))                            \
  X(kernel_function, cuKernelGetFunction, (CUfunction*, CUkernel))                                         \
  X(encode_tiled, cuTensorMapEncodeTiled,                                                                  \
    (void*, int, uint32_t, void*, const uint64_t*, const uint64_t*, const uint32_t*, const uint32_t*, int, \
     int, int, int))                                                                                       \
  X(encode_im2col, cuTensorMapEncodeIm2col,                                                                \
    (void*, int, uint32_t, void*, const uint64_t*, const uint64_t*, const int*, const int*, uint32_t,      \
     uint32_t, const uint32_t*, int, int, int, int))                                                       \
  X(replace_address, cuTensorMapReplaceAddress, (void*, void*))                                            \
  X(launch, cuLaunchKernelEx, (const CUlaunchConfig*, CUfunction, void**, void**))

#define CUDA_MEMBER(member, symbol, parameters) CUresult(*member) parameters;
typedef struct cuda_api {
  CUDA_FUNCTIONS(CUDA_MEMBER)
  CUresult (*function_load)(CUfunction); /* cuFuncLoad; NULL in drivers before 12.4 */
} cuda_api;
#undef CUDA_MEMBER

#endif
