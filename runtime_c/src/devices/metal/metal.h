/* What the Metal files of the runtime share. */
#ifndef TILEC_METAL_H_
#define TILEC_METAL_H_
#include "compiler.h"
#include "devices/driver.h"
#include "devices/family.h"
#include "devices/metal/metal_api.h"
#include "records.h"

enum {
  METAL_ALIGN = 256, /* slices of a workspace */
  METAL_VECTOR = 16, /* tensors: the widest access of one lane */
  METAL_LANES = 32,  /* of a simdgroup */
  METAL_CORES = 16   /* Metal does not say how many a GPU has; persistent launches count them */
};

/* Where the system has them; tests have others. */
#ifndef METAL_FRAMEWORK
#define METAL_OBJC      "/usr/lib/libobjc.A.dylib"
#define METAL_FRAMEWORK "/System/Library/Frameworks/Metal.framework/Metal"
#endif

/* A message with parameters of these types; METAL_ASK: without any. */
#define METAL_TELL(result, ...) ((result (*)(metal_id, metal_selector, __VA_ARGS__))metal.send)
#define METAL_ASK(result)       ((result (*)(metal_id, metal_selector))metal.send)

/* ---- metal_driver.c ---- */
static device_driver metal_driver;
static metal_api metal;      /* filled once the driver is ready */
LOCAL void metal_open(void); /* finds Metal; once */
LOCAL void metal_lock(void); /* around everything that is made once */
LOCAL void metal_unlock(void);
LOCAL tilec_status metal_fail(tilec_status status, const char* name, const char* action, metal_id error);

/* ---- metal_devices.c ---- */
typedef struct metal_device {
  driver_device head;
  metal_id object, queue; /* the runtime's own, for calls without one */
} metal_device;
LOCAL tilec_status metal_device_get(int32_t number, metal_device** out);
LOCAL void metal_after_fork(void); /* in the child */
LOCAL tilec_status metal_archs(int32_t device, const arch_list** out);
LOCAL int64_t metal_units(const tilec_exec* exec);
LOCAL metal_device* metal_device_of(const arch_list* archs); /* whose list it is: one of metal_archs */

/* ---- metal_code.c ---- */
LOCAL tilec_status metal_load(const kernel_record* kernel, const variant_record* variant,
                              const metal_device* device);
LOCAL tilec_status metal_preload(const kernel_record* only, int32_t device); /* NULL = every kernel */

/* ---- metal_call.c ---- */
LOCAL tilec_status metal_run(const kernel_record* kernel, const variant_record* variant,
                             const arch_list* archs, const tilec_exec* exec, const tilec_value* params,
                             const int64_t* dims);

#endif
