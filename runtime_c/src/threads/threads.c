/* Who runs the blocks of a launch when the caller brings no parallel_for: a GOMP that is already in the
 * process, else the library's own pool; the calling thread alone inside any parallel region. */
#include "threads/threads.h"

#include "settings.h"
#include "system/system.h"
#include "threads/gomp.h"
#include "threads/pool.h"

static system_once threads_once = SYSTEM_ONCE;
static uint32_t asked_workers; /* 0: nobody asked */
static uint32_t usable_cpus;

LOCAL check_place* task_enter(check_place* place) {
  check_place* outer = mine.check;
  mine.task_depth++;
  mine.check = place;
  return outer;
}

LOCAL void task_leave(check_place* outer) {
  mine.task_depth--;
  mine.check = outer;
}

static void after_fork(void) {
  if (CALLS_RUNTIME) mine.task_depth = 0;
  gomp_forget();
  pool_reset();
#define X(name) \
  if (name##_family.after_fork) name##_family.after_fork();
  DEVICE_FAMILIES
#undef X
}

static uint32_t count_cpus(void) {
  uint32_t count = system_cpus();
  return count == 0 ? 1 : count <= MAX_WORKERS ? count : MAX_WORKERS;
}

static void start_threads(void) {
  asked_workers = settings_get()->num_threads;
  usable_cpus = count_cpus();
  system_after_fork(after_fork);
  gomp_find();
}

LOCAL void threads_start(void) { system_run_once(&threads_once, start_threads); }

LOCAL void threads_rescan(void) { gomp_find(); }

LOCAL bool threads_busy(void) { return (CALLS_RUNTIME && mine.task_depth > 0) || gomp_in_parallel(); }

LOCAL uint32_t threads_default(void) {
  if (asked_workers) return asked_workers;
  return gomp_present() ? gomp_max_threads() : usable_cpus;
}

LOCAL bool threads_asleep(void) { return !gomp_present() && pool_sleeps(); }

LOCAL void threads_run(uint32_t workers, int64_t n, int64_t grain, tilec_task task, void* closure) {
  if (gomp_present())
    gomp_run(workers, n, grain, task, closure);
  else if (!pool_run(workers, n, grain, task, closure))
    task(closure, 0, 0, n);
}
