/* Who runs the blocks of a launch. */
#ifndef TILEC_THREADS_H_
#define TILEC_THREADS_H_
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tilec/tilec.h>

#include "compiler.h"
#include "keep.h"

/* Looks at the process once: how many CPUs it may use, who else runs threads, what to do after a fork. */
LOCAL void threads_start(void);
LOCAL bool threads_busy(void);        /* the caller is inside a parallel region */
LOCAL uint32_t threads_default(void); /* workers a call gets when it asks for none; after threads_start */
LOCAL void threads_rescan(void);      /* looks again for a GOMP that was loaded since */
LOCAL void threads_run(uint32_t workers, int64_t n, int64_t grain, tilec_task task, void* closure);
LOCAL bool threads_asleep(void); /* another thread would have to be woken first */
/* Around every piece of a launch in a library with CALLS_RUNTIME: the log that a kernel prints to is the one
 * place from which a call may come while blocks run on this thread, and such a call is serial. task_enter
 * gives what task_leave takes. */
LOCAL check_place* task_enter(check_place* place);
LOCAL void task_leave(check_place* outer);

#endif
