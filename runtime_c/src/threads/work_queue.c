/* Who is done with a piece takes the next one: of its own range, then of the ranges behind it. */
#include "threads/work_queue.h"

#include <stdatomic.h>

#include "arith.h"

LOCAL void work_queue_fill(work_queue* queue, uint32_t workers, int64_t n, int64_t grain, tilec_task task,
                           void* closure) {
  uint32_t count = (uint32_t)int_min(workers, MOST_RANGES);
  int64_t begin = 0;
  queue->num_ranges = count;
  queue->grain = grain;
  queue->task = task;
  queue->closure = closure;
  for (uint32_t i = 0; i < count; i++) {
    int64_t end = begin + n / count + (i < n % count);
    atomic_store_explicit(&queue->ranges[i].next, begin, memory_order_relaxed);
    queue->ranges[i].end = end;
    begin = end;
  }
}

/* Looks before it takes: of a range that is done nobody wants to own the cache line. */
static void drain_range(const work_queue* queue, work_range* range, uint32_t worker) {
  while (atomic_load_explicit(&range->next, memory_order_relaxed) < range->end) {
    int64_t begin = atomic_fetch_add_explicit(&range->next, queue->grain, memory_order_relaxed);
    if (begin >= range->end) return;
    queue->task(queue->closure, worker, begin, int_min(begin + queue->grain, range->end));
  }
}

LOCAL void work_queue_drain(work_queue* queue, uint32_t worker, uint32_t home) {
  for (uint32_t i = 0; i < queue->num_ranges; i++) {
    drain_range(queue, &queue->ranges[(home + i) % queue->num_ranges], worker);
  }
}
