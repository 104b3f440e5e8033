/* The library's own threads: the other team, with the promises of gomp.h. */
#ifndef TILEC_POOL_H_
#define TILEC_POOL_H_
#include <stdbool.h>
#include <stdint.h>
#include <tilec/tilec.h>

#include "compiler.h"

LOCAL void pool_reset(void); /* in a forked child: starts over without threads */
LOCAL bool pool_run(uint32_t workers, int64_t n, int64_t grain, tilec_task task,
                    void* closure); /* false: busy */
LOCAL bool pool_sleeps(void);       /* a thread would have to be woken, or started */

#endif
