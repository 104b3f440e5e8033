/* Iterations handed out in pieces of `grain`, by both teams. */
#ifndef TILEC_WORK_QUEUE_H_
#define TILEC_WORK_QUEUE_H_
#include <tilec/tilec.h>

#include "compiler.h"

#include <stdint.h>

typedef struct work_queue {
  _Alignas(64) _Atomic int64_t next;
  _Alignas(64) int64_t n;
  int64_t grain;
  tilec_task task;
  void* closure;
} work_queue;
LOCAL void work_queue_drain(work_queue* queue, uint32_t worker);

#endif
