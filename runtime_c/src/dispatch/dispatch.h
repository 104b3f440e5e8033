/* Which variant serves a call. */
#ifndef TILEC_DISPATCH_H_
#define TILEC_DISPATCH_H_
#include <tilec/tilec.h>

#include "compiler.h"
#include "devices/family.h"
#include "dispatch/guards.h"
#include "records.h"

LOCAL tilec_status dispatch(const kernel_record* kernel, const dispatch_query* query,
                            const variant_record** out);
LOCAL const variant_record* forced_variant(const kernel_record* kernel, const arch_list* archs);

#endif
