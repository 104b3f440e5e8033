/* The family of Apple's GPUs: part of the runtime where a library has code for one. */
#include "devices/metal/metal.h"

#include "devices/metal/metal_driver.c"
#include "devices/metal/metal_devices.c"
#include "devices/metal/metal_code.c"
#include "devices/metal/metal_call.c"

static const device_family metal_family = {
    .title = "Metal",
    .word = "Apple GPU",
    .device_type = kDLMetal,
    .handles = true,
    .memory_align = METAL_ALIGN,
    .tensor_align = METAL_VECTOR,
    .archs = metal_archs,
    .units = metal_units,
    .preload = metal_preload,
    .run = metal_run,
    .after_fork = metal_after_fork,
};
