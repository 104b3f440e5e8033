/* The family of AMD's GPUs: part of the runtime where a library has code for one. */
#include "devices/hip/hip.h"

#include "devices/hip/hip_driver.c"
#include "devices/hip/hip_devices.c"
#include "devices/hip/hip_call.c"

static const device_family hip_family = {
    .title = "HIP",
    .word = "AMD GPU",
    .device_type = kDLROCM,
    .memory_align = HIP_ALIGN,
    .tensor_align = HIP_VECTOR,
    .archs = hip_archs,
    .units = hip_units,
    .preload = hip_preload,
    .run = hip_run,
    .after_fork = hip_after_fork,
};
