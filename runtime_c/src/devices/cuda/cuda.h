/* What the CUDA files of the runtime share. */
#ifndef TILEC_CUDA_H_
#define TILEC_CUDA_H_
#include "compiler.h"
#include "devices/cuda/cuda_api.h"
#include "devices/cuda/cuda_records.h"
#include "devices/driver.h"
#include "devices/family.h"
#include "records.h"

enum {
  CUDA_ALIGN = 256, /* workspace, slices */
  CUDA_VECTOR = 16  /* tensors: the widest access of one lane */
};
_Static_assert(CUDA_VECTOR <= PARAM_ALIGN, "tensors");

/* variant_record.code */
static inline cuda_code* code_of(const variant_record* variant) { return variant->code; }

/* ---- cuda_driver.c ---- */
static device_driver cuda_driver;
static cuda_api cuda;                /* filled once the driver is ready */
LOCAL void cuda_open(void);          /* loads and initialises it; once */
LOCAL int cuda_driver_version(void); /* 1000 * major + 10 * minor */
LOCAL void cuda_lock(void);          /* around everything that is made once */
LOCAL void cuda_unlock(void);
LOCAL tilec_status cuda_fail(tilec_status status, const char* name, const char* action, CUresult result);

/* ---- cuda_devices.c ---- */
typedef struct cuda_device {
  driver_device head;
  _Atomic(CUcontext) primary; /* retained at first need, never released */
  CUdevice handle;
  int multiprocessors;
} cuda_device;
LOCAL tilec_status cuda_device_get(int32_t number, cuda_device** out);
LOCAL void cuda_after_fork(void); /* in the child */
LOCAL tilec_status cuda_archs(int32_t device, const arch_list** out);
LOCAL int64_t cuda_units(const tilec_exec* exec);
LOCAL cuda_device* cuda_device_of(const arch_list* archs); /* whose list it is: one of cuda_archs */
/* Makes a context of the device current: *pushed says that cuda_leave must take it away again. */
LOCAL tilec_status cuda_enter(cuda_device* device, bool* pushed);
LOCAL void cuda_leave(bool pushed);
/* Whether the current context is the device's primary one, which is retained if it is. */
LOCAL bool cuda_in_primary(cuda_device* device);
/* TILEC_ERR_DEVICE for a stream of another device: a launch would run there. */
LOCAL tilec_status cuda_check_stream(const cuda_device* device, CUstream stream);

/* ---- cuda_images.c ---- */
LOCAL bool cuda_ready(const variant_record* variant, const cuda_device* device);
LOCAL bool cuda_direct(const variant_record* variant, const cuda_device* device);
LOCAL void cuda_find_functions(const variant_record* variant, cuda_device* device); /* where it may */
LOCAL tilec_status cuda_load(const kernel_record* kernel, const variant_record* variant, cuda_device* device);
LOCAL tilec_status cuda_preload(const kernel_record* only, int32_t device); /* NULL = every kernel */

/* ---- cuda_templates.c ---- */
enum { MAX_RANK = 5, MAX_MAP_SIZES = 2 * MAX_RANK - 1 };
/* A map of the same sizes that this thread has kept, with another address; false if there is none. */
LOCAL bool reuse_map(const tensor_map* map, void* address, const int64_t* sizes, unsigned char* out);
LOCAL void keep_map(const tensor_map* map, const int64_t* sizes, const unsigned char* bytes);

/* ---- cuda_maps.c ---- */
typedef struct cuda_maps {
  _Alignas(64) unsigned char bytes[MAX_TENSOR_MAPS][CU_MAP_BYTES];
} cuda_maps;
/* Encodes the maps of all launches, one after the other. */
LOCAL tilec_status encode_maps(const kernel_record* kernel, const variant_record* variant,
                               const tilec_value* params, void* const* slices, const int64_t* dims,
                               cuda_maps* out);

/* ---- cuda_call.c ---- */
LOCAL tilec_status cuda_run(const kernel_record* kernel, const variant_record* variant,
                            const arch_list* archs, const tilec_exec* exec, const tilec_value* params,
                            const int64_t* dims);

#endif
