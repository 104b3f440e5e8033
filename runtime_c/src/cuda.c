/* The family of NVIDIA's GPUs: part of the runtime where a library has code for one. */
#include "cuda.h"

#include "cuda_driver.c"
#include "cuda_devices.c"
#include "cuda_images.c"
#include "cuda_templates.c"
#include "cuda_maps.c"
#include "cuda_call.c"

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
