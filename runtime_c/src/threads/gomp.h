/* A GNU OpenMP that something else loaded into the process: one of the two teams that threads.c chooses
 * between. Both run every iteration once and use worker numbers below `workers`, each by one thread at a
 * time; neither is entered from inside a task. */
#ifndef TILEC_GOMP_H_
#define TILEC_GOMP_H_
#include <stdbool.h>
#include <stdint.h>
#include <tilec/tilec.h>

#include "compiler.h"

LOCAL void gomp_find(void);
LOCAL void gomp_forget(void); /* in a forked child: its team is gone and would be waited for */
LOCAL bool gomp_present(void);
LOCAL bool gomp_in_parallel(void);
LOCAL uint32_t gomp_max_threads(void);
LOCAL void gomp_run(uint32_t workers, int64_t n, int64_t grain, tilec_task task, void* closure);

#endif
