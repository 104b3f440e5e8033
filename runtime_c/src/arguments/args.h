/* Validation of arguments. */
#ifndef TILEC_ARGS_H_
#define TILEC_ARGS_H_
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tilec/tilec.h>

#include "compiler.h"
#include "records.h"

INLINE tilec_status check_dims(const kernel_record* kernel, const int64_t* dims);
/* That tensors are not NULL, unless empty, and aligned as the device wants them. */
INLINE tilec_status check_pointers(const kernel_record* kernel, DLDevice device, const tilec_value* params,
                                   const int64_t* dims);
LOCAL tilec_status all_extents(const kernel_record* kernel, const tilec_value* params, const int64_t* dims,
                               int64_t* extents);
/* What one argument says by itself: a scalar goes to out, a tensor is checked but for its extents. */
LOCAL tilec_status unpack_alone(const kernel_record* kernel, uint32_t index, DLDevice device,
                                const tilec_arg* arg, tilec_value* out);
LOCAL tilec_status bound_dims(const kernel_record* kernel, const tilec_arg* args, const tilec_value* params,
                              int64_t* dims); /* reads the arguments that dims are bound to alone */
LOCAL tilec_status given_dims(const kernel_record* kernel, const tilec_arg* dim_args, int64_t* dims);
LOCAL tilec_status unpack_args(const kernel_record* kernel, DLDevice device, const tilec_arg* args,
                               size_t num_args, tilec_value* params, int64_t* dims);

#endif
