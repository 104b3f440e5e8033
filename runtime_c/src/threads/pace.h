/* threads_run where that is worth it. */
#ifndef TILEC_PACE_H_
#define TILEC_PACE_H_
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tilec/tilec.h>

#include "compiler.h"

/* `launch` tells launches apart. */
LOCAL void paced_run(const void* launch, uint32_t workers, int64_t n, int64_t grain, tilec_task task,
                     void* closure);

#endif
