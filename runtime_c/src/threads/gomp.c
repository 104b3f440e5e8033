/* A GNU OpenMP found among the loaded objects. Its threads are already spinning for someone else (PyTorch,
 * say): a second team beside them would fight for the same cores. */
#include "threads/gomp.h"

#include <stdatomic.h>

#include "status.h"
#include "system/system.h"
#include "threads/work_queue.h"

typedef struct gomp_api {
  void (*parallel)(void (*body)(void*), void* data, unsigned num_threads, unsigned flags);
  int (*thread_num)(void);
  int (*in_parallel)(void);
  int (*max_threads)(void);
} gomp_api;

static gomp_api gomp_found;
static _Atomic(const gomp_api*) gomp;
static atomic_bool gomp_unusable;
static system_mutex gomp_mutex = SYSTEM_MUTEX;

static bool gomp_resolve(void* handle, gomp_api* api) {
  *(void**)&api->parallel = system_symbol(handle, "GOMP_parallel");
  *(void**)&api->thread_num = system_symbol(handle, "omp_get_thread_num");
  *(void**)&api->in_parallel = system_symbol(handle, "omp_in_parallel");
  *(void**)&api->max_threads = system_symbol(handle, "omp_get_max_threads");
  return api->parallel && api->thread_num && api->in_parallel && api->max_threads;
}

/* Wheels carry renamed copies such as libgomp-a34b3233.so.1, so that the soname is not enough. */
static void gomp_search(void) {
  const char* path = NULL;
  if (gomp_present() || atomic_load(&gomp_unusable)) return;
  void* handle = system_loaded("libgomp", &path);
  if (!handle || !gomp_resolve(handle, &gomp_found)) return;
  atomic_store_explicit(&gomp, &gomp_found, memory_order_release);
  log_line(TILEC_LOG_INFO, "threads: using %s", path);
}

LOCAL void gomp_find(void) {
  system_lock(&gomp_mutex);
  gomp_search();
  system_unlock(&gomp_mutex);
}

LOCAL void gomp_forget(void) {
  system_renew(&gomp_mutex);
  atomic_store(&gomp_unusable, true);
  atomic_store_explicit(&gomp, NULL, memory_order_release);
}

static const gomp_api* gomp_get(void) { return atomic_load_explicit(&gomp, memory_order_acquire); }

LOCAL bool gomp_present(void) { return gomp_get() != NULL; }

LOCAL bool gomp_in_parallel(void) {
  const gomp_api* api = gomp_get();
  return api && api->in_parallel();
}

LOCAL uint32_t gomp_max_threads(void) {
  const gomp_api* api = gomp_get();
  int count = api ? api->max_threads() : 1;
  return count < 1 ? 1 : count > MAX_WORKERS ? MAX_WORKERS : (uint32_t)count;
}

typedef struct gomp_job {
  work_queue queue;
  uint32_t workers;
  int (*thread_num)(void);
} gomp_job;

static void gomp_body(void* data) {
  gomp_job* job = data;
  uint32_t worker = (uint32_t)job->thread_num();
  if (worker < job->workers) work_queue_drain(&job->queue, worker, worker);
}

/* The team has the size that the program's own have, however few of it work: GOMP ends the threads that a
 * smaller team has no use for, and starts them again for the next larger one. */
LOCAL void gomp_run(uint32_t workers, int64_t n, int64_t grain, tilec_task task, void* closure) {
  const gomp_api* api = gomp_get();
  gomp_job job;
  job.workers = workers;
  job.thread_num = api->thread_num;
  work_queue_fill(&job.queue, workers, n, grain, task, closure);
  uint32_t team = gomp_max_threads();
  api->parallel(gomp_body, &job, team < workers ? workers : team, 0);
}
