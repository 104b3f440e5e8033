/* What a thread holds from one call to the next. */
#ifndef TILEC_KEEP_H_
#define TILEC_KEEP_H_
#include <stdbool.h>
#include <stdint.h>

#include "compiler.h"
#include "records.h"

typedef _Atomic(const char*) check_place; /* what a check of a call that failed says, NULL for none */

/* One choice by cost. It is of so many dims at most; others are made anew. */
enum { KEPT_BITS = 6, KEPT_CHOICES = 1 << KEPT_BITS, KEPT_DIMS = 4 };
typedef struct kept_choice {
  const variant_record* chosen;
  const costs_fn* costs; /* among what was chosen; NULL: nothing is kept here */
  int64_t units;
  uint64_t starts; /* starts_of the call */
  int64_t dims[KEPT_DIMS];
} kept_choice;

/* What this thread keeps; the pointers own memory, of malloc or, where it is aligned, of system_allocate;
 * `check` owns none. It is one object, so that a function asks once where it lies, and of the dynamic kind: a
 * process has few bytes for the static one, and any number of libraries is to load. */
typedef struct thread_state {
  struct error_state* error;       /* status.c */
  struct scratch_block* scratch;   /* workspace.c */
#define X(name) void* name##_kept; /* of the family's files, aligned */
  DEVICE_FAMILIES
#undef X
  struct line_state* line; /* lines.c */
  check_place* check;      /* lines.c: of the blocks that run on this thread */
  uint32_t task_depth;     /* threads.c */
  bool failed;             /* status.c */
  bool kept;
  kept_choice choices[KEPT_CHOICES]; /* choice.c */
} thread_state;

static _Thread_local thread_state mine;

/* Has what `mine` owns freed at the end of this thread. Where the process has no key left for that it stays:
 * a leak of a thread that ends, and no failure of its call. */
LOCAL void thread_keep(void);

#endif
