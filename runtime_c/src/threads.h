/* The two teams that threads.c chooses between. Both run every iteration once and use worker numbers below
 * `workers`, each by one thread at a time; neither is entered from inside a task. */
#ifndef TILEC_THREADS_H_
#define TILEC_THREADS_H_
#include "internal.h"

/* ---- gomp.c: a GNU OpenMP that something else loaded into the process ---- */
LOCAL void gomp_find(void);
LOCAL void gomp_forget(void); /* in a forked child: its team is gone and would be waited for */
LOCAL bool gomp_present(void);
LOCAL bool gomp_in_parallel(void);
LOCAL uint32_t gomp_max_threads(void);
LOCAL void gomp_run(uint32_t workers, int64_t n, int64_t grain, tilec_task task, void* closure);

/* ---- pool.c: the library's own threads ---- */
LOCAL void pool_reset(void); /* in a forked child: starts over without threads */
LOCAL bool pool_run(uint32_t workers, int64_t n, int64_t grain, tilec_task task,
                    void* closure); /* false: busy */
LOCAL bool pool_sleeps(void);       /* a thread would have to be woken, or started */

/* Iterations handed out in pieces of `grain`, shared by both teams. */
typedef struct work_queue {
  _Alignas(64) _Atomic int64_t next;
  _Alignas(64) int64_t n;
  int64_t grain;
  tilec_task task;
  void* closure;
} work_queue;
LOCAL void work_queue_drain(work_queue* queue, uint32_t worker);

#endif
