/* Which of several variants that serve the same calls is expected to take the least time. */
#ifndef TILEC_CHOICE_H_
#define TILEC_CHOICE_H_
#include "compiler.h"
#include "dispatch.h"
#include "records.h"

/* The one of least cost among those that serve the same calls as this one. */
LOCAL const variant_record* cheapest(const kernel_record* kernel, const variant_record* variant,
                                     const dispatch_query* query);
LOCAL double cost_of(const variant_record* variant, const dispatch_query* query); /* microseconds */

#endif
