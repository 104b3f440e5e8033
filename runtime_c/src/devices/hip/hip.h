/* What the HIP files of the runtime share. */
#ifndef TILEC_HIP_H_
#define TILEC_HIP_H_
#include "compiler.h"
#include "devices/driver.h"
#include "devices/family.h"
#include "devices/hip/hip_api.h"
#include "records.h"

enum {
  HIP_ALIGN = 256, /* workspace, slices */
  HIP_VECTOR = 16  /* tensors: the widest access of one lane */
};
_Static_assert(HIP_VECTOR <= PARAM_ALIGN, "tensors");

/* ---- hip_driver.c ---- */
static device_driver hip_driver;
static hip_api hip;        /* filled once the driver is ready */
LOCAL void hip_open(void); /* opens and initialises libamdhip64; once */
LOCAL void hip_lock(void); /* around everything that is made once */
LOCAL void hip_unlock(void);
LOCAL tilec_status hip_fail(tilec_status status, const char* name, const char* action, hipError result);

/* ---- hip_devices.c ---- */
typedef struct hip_device {
  driver_device head;
  int units;
} hip_device;
LOCAL tilec_status hip_device_get(int32_t number, hip_device** out);
LOCAL void hip_after_fork(void); /* in the child */
LOCAL tilec_status hip_archs(int32_t device, const arch_list** out);
LOCAL int64_t hip_units(const tilec_exec* exec);
LOCAL hip_device* hip_device_of(const arch_list* archs); /* whose list it is: one of hip_archs */
/* Makes the device current; hip_leave(*before) brings back the one that was. */
LOCAL tilec_status hip_enter(const hip_device* device, int* before);
LOCAL void hip_leave(const hip_device* device, int before);

/* ---- hip_call.c ---- */
LOCAL tilec_status hip_preload(const kernel_record* only, int32_t device); /* NULL = every kernel */
LOCAL tilec_status hip_run(const kernel_record* kernel, const variant_record* variant, const arch_list* archs,
                           const tilec_exec* exec, const tilec_value* params, const int64_t* dims);

#endif
