/* Which variant serves a call. */
#ifndef TILEC_DISPATCH_H_
#define TILEC_DISPATCH_H_
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tilec/tilec.h>

#include "compiler.h"
#include "devices/family.h"
#include "records.h"

typedef struct dispatch_query {
  const arch_list* archs; /* of the device */
  const tilec_exec* exec; /* how the call runs */
  const int64_t* dims;
  const uint32_t* min_align; /* bytes per parameter; NULL = from params */
  const tilec_value* params; /* NULL = each parameter's align_bytes */
} dispatch_query;
LOCAL tilec_status dispatch(const kernel_record* kernel, const dispatch_query* query,
                            const variant_record** out);
LOCAL const variant_record* forced_variant(const kernel_record* kernel, const arch_list* archs);
LOCAL const tilec_guard* failing_guard(const kernel_record* kernel, const variant_record* variant,
                                       const dispatch_query* query);
LOCAL bool candidate_admits(const kernel_record* kernel, const candidate* one, const dispatch_query* query);

#endif
