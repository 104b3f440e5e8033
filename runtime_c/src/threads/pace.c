/* How long the blocks of a launch take, so that launches of little work stay on the calling thread: handing
 * them to another one costs more than they do, most of all where it sleeps or has no CPU to itself. */
#include "threads/pace.h"

#include <stdatomic.h>

#include "arith.h"
#include "system/system.h"
#include "threads/threads.h"

enum {
  ALONE_NS = 5000,             /* what a thread that is awake could take over in part */
  ALONE_NS_OF_SLEEPER = 20000, /* one that has to be woken first */
  PIECES_ALONE = 4,            /* looks at the clock on the way */
  LAUNCHES = 256
};

/* Nanoseconds a block by launch, plus one: the least of late. Launches that share a place even out. */
static _Atomic uint32_t paces[LAUNCHES];

/* The blocks from `base` on; the caller's first piece is timed. */
typedef struct paced_task {
  tilec_task task;
  void* closure;
  int64_t base;
  _Atomic uint32_t* pace;
  bool is_timed; /* by the caller alone */
} paced_task;

static _Atomic uint32_t* pace_of(const void* launch) {
  uint64_t key = (uint64_t)(uintptr_t)launch * UINT64_C(0x9E3779B97F4A7C15);
  return &paces[key >> 56];
}

/* Down at once, up by half at a time: a thread that lost its CPU meanwhile measured too much. */
static void remember(_Atomic uint32_t* pace, int64_t elapsed, int64_t blocks) {
  uint32_t known = atomic_load_explicit(pace, memory_order_relaxed);
  int64_t found = int_min(elapsed / blocks, UINT32_MAX / 4) + 1;
  int64_t most = known ? known + known / 2 + 1 : found;
  atomic_store_explicit(pace, (uint32_t)int_min(found, most), memory_order_relaxed);
}

static void run_paced(void* closure, uint32_t worker, int64_t begin, int64_t end) {
  paced_task* paced = closure;
  if (worker != 0 || paced->is_timed) {
    paced->task(paced->closure, worker, paced->base + begin, paced->base + end);
    return;
  }
  paced->is_timed = true;
  int64_t start = system_now_ns();
  paced->task(paced->closure, worker, paced->base + begin, paced->base + end);
  remember(paced->pace, system_now_ns() - start, end - begin);
}

/* Whether all blocks together are worth no second thread. */
static bool is_little(const _Atomic uint32_t* pace, int64_t blocks) {
  uint32_t known = atomic_load_explicit(pace, memory_order_relaxed);
  int64_t most = threads_asleep() ? ALONE_NS_OF_SLEEPER : ALONE_NS;
  return known != 0 && blocks < most && (int64_t)(known - 1) * blocks < most;
}

/* Runs blocks alone while that goes as fast as it was expected to; gives the first one that is left. */
static int64_t run_alone(const paced_task* paced, int64_t blocks) {
  int64_t start = system_now_ns(), done = 0, piece = (blocks + PIECES_ALONE - 1) / PIECES_ALONE, elapsed = 0;
  while (done < blocks && elapsed < 2 * ALONE_NS_OF_SLEEPER) {
    int64_t end = int_min(done + piece, blocks);
    paced->task(paced->closure, 0, done, end);
    done = end;
    elapsed = system_now_ns() - start;
  }
  remember(paced->pace, elapsed, done);
  return done;
}

LOCAL void paced_run(const void* launch, uint32_t workers, int64_t n, int64_t grain, tilec_task task,
                     void* closure) {
  paced_task paced = {.task = task, .closure = closure, .pace = pace_of(launch)};
  if (is_little(paced.pace, n)) {
    paced.base = run_alone(&paced, n);
    paced.is_timed = true;
  }
  if (paced.base < n) threads_run(workers, n - paced.base, grain, run_paced, &paced);
}
