/* Why a variant was taken or rejected, in words. */
#ifndef TILEC_EXPLAIN_H_
#define TILEC_EXPLAIN_H_
#include "compiler.h"
#include "dispatch/guards.h"
#include "records.h"

#include <stddef.h>

LOCAL void describe_rejection(const kernel_record* kernel, const tilec_guard* guard,
                              const dispatch_query* query, char* out, size_t size);
LOCAL size_t dispatch_explain(const kernel_record* kernel, const dispatch_query* query, char* out,
                              size_t size);

#endif
