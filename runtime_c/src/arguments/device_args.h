/* What the drivers of devices take for a call: a pointer to each argument of its kernels. */
#ifndef TILEC_DEVICE_ARGS_H_
#define TILEC_DEVICE_ARGS_H_
#include <stdint.h>
#include <tilec/tilec.h>

#include "compiler.h"
#include "records.h"

/* Tensors, workspace slices, scalars, dims; their number. `floats` holds, by parameter, those that travel as
 * float. */
LOCAL uint32_t collect_arguments(const kernel_record* kernel, const variant_record* variant,
                                 const tilec_value* params, const int64_t* dims, void** slices, float* floats,
                                 void** pointers);
/* Where the slices of a call lie in its workspace. */
LOCAL tilec_status place_workspace(const kernel_record* kernel, const variant_record* variant,
                                   const tilec_exec* exec, const int64_t* dims, void** slices);

#endif
