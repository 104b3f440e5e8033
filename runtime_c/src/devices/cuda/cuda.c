/* The family of NVIDIA's GPUs: part of the runtime where a library has code for one. */
#include "devices/cuda/cuda.h"

#include "devices/cuda/cuda_driver.c"
#include "devices/cuda/cuda_devices.c"
#include "devices/cuda/cuda_images.c"
#include "devices/cuda/cuda_templates.c"
#include "devices/cuda/cuda_maps.c"
#include "devices/cuda/cuda_call.c"

static const device_family cuda_family = {
    .title = "CUDA",
    .word = "GPU",
    .device_type = kDLCUDA,
    .memory_align = CUDA_ALIGN,
    .tensor_align = CUDA_VECTOR,
    .archs = cuda_archs,
    .units = cuda_units,
    .preload = cuda_preload,
    .run = cuda_run,
    .after_fork = cuda_after_fork,
};
