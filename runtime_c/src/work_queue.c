/* Who is done with a piece takes the next one. */
#include "work_queue.h"

#include <stdatomic.h>

LOCAL void work_queue_drain(work_queue* queue, uint32_t worker) {
  int64_t begin;
  while ((begin = atomic_fetch_add_explicit(&queue->next, queue->grain, memory_order_relaxed)) < queue->n) {
    int64_t left = queue->n - begin;
    queue->task(queue->closure, worker, begin, begin + (left < queue->grain ? left : queue->grain));
  }
}
