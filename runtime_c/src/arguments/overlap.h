/* Tensors that are written must not share memory with others. */
#ifndef TILEC_OVERLAP_H_
#define TILEC_OVERLAP_H_
#include "compiler.h"
#include "records.h"

#include <tilec/tilec.h>

LOCAL tilec_status check_overlap(const kernel_record* kernel, DLDevice device, const tilec_value* params,
                                 const int64_t* extents);

#endif
