/* On which CPUs the pool's threads are, so that none shares the caller's while others are idle. */
#ifndef TILEC_PLACES_H_
#define TILEC_PLACES_H_
#include <stdbool.h>
#include <stdint.h>

#include "compiler.h"

LOCAL void places_reset(void);          /* in a forked child */
LOCAL void place_worker(uint32_t home); /* notes where this thread is; workers count from 1 */
LOCAL bool place_apart(uint32_t home);  /* ... and goes to another CPU if the caller was on this one */
LOCAL void place_caller(void);          /* notes where the thread is that has a job to offer */
LOCAL bool place_is_shared(void);       /* a worker was last seen where the caller is */

#endif
