/* What a caller hands back is a kernel or a variant of this library. */
#ifndef TILEC_OWN_H_
#define TILEC_OWN_H_
#include "compiler.h"
#include "records.h"

#include <tilec/tilec.h>

LOCAL tilec_status own_kernel(const tilec_kernel* kernel, const kernel_record** out);
LOCAL tilec_status own_variant(const kernel_record* kernel, const tilec_variant* variant,
                               const variant_record** out);

#endif
