/* One call: a variant is chosen, and the family of the device runs it. */
#ifndef TILEC_CALL_H_
#define TILEC_CALL_H_
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tilec/tilec.h>

#include "compiler.h"
#include "records.h"

INLINE tilec_status call_checked(const kernel_record* kernel, const tilec_exec* exec,
                                 const tilec_value* params, const int64_t* dims);

#endif
