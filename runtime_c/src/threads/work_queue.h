/* Iterations handed out in pieces of `grain`, by both teams. Each worker has a range of its own and helps the
 * others when it is done: workers meet at no counter before, and a call like the one before finds what a
 * range reads and writes in the caches of the same CPU. */
#ifndef TILEC_WORK_QUEUE_H_
#define TILEC_WORK_QUEUE_H_
#include <tilec/tilec.h>

#include "compiler.h"

#include <stdint.h>

enum { MOST_RANGES = 64 }; /* of 64 bytes; more workers than that share them */

typedef struct work_range {
  _Alignas(64) _Atomic int64_t next;
  int64_t end;
} work_range;

typedef struct work_queue {
  work_range ranges[MOST_RANGES];
  uint32_t num_ranges;
  int64_t grain;
  tilec_task task;
  void* closure;
} work_queue;

/* Before anybody drains it; `workers` is at least 1. */
LOCAL void work_queue_fill(work_queue* queue, uint32_t workers, int64_t n, int64_t grain, tilec_task task,
                           void* closure);
/* `home`: the number of the thread among those of its team, whose range comes first. */
LOCAL void work_queue_drain(work_queue* queue, uint32_t worker, uint32_t home);

#endif
