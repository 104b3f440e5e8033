/* Which schedule of a list is expected to take the least time. */
#ifndef TILEC_CHOICE_H_
#define TILEC_CHOICE_H_
#include "compiler.h"
#include "dispatch/guards.h"
#include "records.h"

/* The one of least cost among the schedules of a list that admit a call; `first` is the first that does. */
LOCAL const variant_record* cheapest(const kernel_record* kernel, const variant_record* first,
                                     const dispatch_query* query);
/* Whether `variant`, which admits a call, is one of those that are compared where `first` is the first. */
LOCAL bool is_compared(const kernel_record* kernel, const variant_record* first,
                       const variant_record* variant);
LOCAL double cost_of(const variant_record* variant, const dispatch_query* query); /* microseconds */

#endif
