/* Waiting for another thread for a moment, before sleeping. */
#ifndef TILEC_SPIN_H_
#define TILEC_SPIN_H_
#include <stdbool.h>
#include <stdint.h>

#include "compiler.h"

/* When a thread may next give its CPU away, by system_now_ns; zeros: at once. */
typedef struct courtesy {
  int64_t next;
} courtesy;

/* Lets a thread run that waits for this CPU. Where that takes long, another program has the CPU and not who
 * was meant, so that it is not done again for many times as long. */
LOCAL void give_way(courtesy* polite);

/* All zeros where a wait begins. */
typedef struct spin {
  uint32_t turns;
  int64_t end; /* by system_now_ns */
} spin;

/* One turn; true every so many, when it is time to look around. */
LOCAL bool spin_turn(spin* turn);

/* Whether about `most_ns` have passed since it was asked first. */
LOCAL bool spin_is_over(spin* turn, int64_t most_ns);

#endif
