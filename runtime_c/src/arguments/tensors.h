/* Validation of one DLTensor. */
#ifndef TILEC_TENSORS_H_
#define TILEC_TENSORS_H_
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tilec/tilec.h>

#include "compiler.h"
#include "records.h"

LOCAL bool has_elements(const param_record* param, const int64_t* extents);
LOCAL tilec_status fail_tag(const kernel_record* kernel, const tilec_param* param, int32_t tag);
LOCAL tilec_status check_tensor(const kernel_record* kernel, const tilec_param* param, DLDevice device,
                                const tilec_arg* arg);
LOCAL int64_t given_stride(const DLTensor* tensor, int32_t axis);
LOCAL tilec_status unpack_tensor(const kernel_record* kernel, const param_record* param, DLDevice device,
                                 const tilec_arg* arg, const int64_t* extents, tilec_value* out);

#endif
