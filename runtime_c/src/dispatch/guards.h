/* What variants demand of a call. */
#ifndef TILEC_GUARDS_H_
#define TILEC_GUARDS_H_
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
/* The first guard of a variant that does not hold; NULL if all do. */
LOCAL const tilec_guard* failing_guard(const kernel_record* kernel, const variant_record* variant,
                                       const dispatch_query* query);
LOCAL int64_t known_alignment(const kernel_record* kernel, const dispatch_query* query, uint32_t param);
LOCAL bool candidate_admits(const kernel_record* kernel, const candidate* one, const dispatch_query* query);

#endif
