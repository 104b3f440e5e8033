/* Who runs the blocks: the caller's parallel_for, the library's pool from many threads, a forked child. */
#include "check.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N = 64 * 500 };
static float a[N], b[N];

static int right(const float *c, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    if (c[i] != a[i] + b[i]) return 0;
  }
  return 1;
}

/* ---- a caller's parallel_for ---- */

typedef struct callers_pool { int64_t skip; uint32_t workers; tilec_status status; int calls; } callers_pool;

static tilec_status callers_parallel_for(void *pool, int64_t n, int64_t grain, tilec_task task, void *closure) {
  callers_pool *mine = pool;
  mine->calls++;
  if (grain < 1) return TILEC_ERR_INTERNAL;
  for (int64_t i = n - 1; i >= mine->skip; i--) task(closure, (uint32_t)(i % mine->workers), i, i + 1);
  return mine->status;
}

static tilec_exec exec_for(callers_pool *pool, void *workspace, size_t size) {
  tilec_exec exec;
  memset(&exec, 0, sizeof(exec));
  exec.struct_size = sizeof(exec);
  exec.device.device_type = kDLCPU;
  exec.parallel_for = callers_parallel_for;
  exec.pool = pool;
  exec.num_workers = 3;
  exec.workspace = workspace;
  exec.workspace_size = size;
  return exec;
}

static int test_callers_threads(void) {
  static float c[N];
  void *workspace = NULL;
  size_t size = 0;
  callers_pool pool = {0, 3, TILEC_OK, 0};
  tilec_exec exec = exec_for(&pool, NULL, 0);
  CHECK(sample_add_workspace(&exec, N, &size) == TILEC_OK && size == 3 * 2 * 64);
  CHECK(sample_add(&exec, a, b, c, N) == TILEC_ERR_WORKSPACE && pool.calls == 0);
  CHECK(posix_memalign(&workspace, 64, size) == 0);
  exec = exec_for(&pool, workspace, size);
  CHECK(sample_add(&exec, a, b, c, N) == TILEC_OK && right(c, N) && pool.calls == 1);
  pool.workers = 4; /* a number that was not announced */
  CHECK(sample_add(&exec, a, b, c, N) == TILEC_ERR_PARTIAL);
  pool = (callers_pool){1, 3, TILEC_OK, 0}; /* forgets a block */
  CHECK(sample_add(&exec, a, b, c, N) == TILEC_ERR_PARTIAL && strstr(sample_last_error(), "499 of 500"));
  pool = (callers_pool){0, 3, TILEC_ERR_INTERNAL, 0};
  CHECK(sample_add(&exec, a, b, c, N) == TILEC_ERR_PARTIAL);
  exec.num_workers = 0;
  CHECK(sample_add(&exec, a, b, c, N) == TILEC_ERR_ARGUMENT);
  exec.num_workers = 3;
  exec.flags = TILEC_EXEC_SERIAL;
  pool.calls = 0;
  CHECK(sample_add(&exec, a, b, c, N) == TILEC_OK && pool.calls == 0);
  free(workspace);
  return 0;
}

/* Blocks after the last one, and a range that ends after it, are no blocks: nothing behind y is written. */
static tilec_status parallel_for_and_more(void *pool, int64_t n, int64_t grain, tilec_task task, void *closure) {
  (void)pool, (void)grain;
  task(closure, 0, n - 1, n + 1);
  task(closure, 1, n, n + 2);
  for (int64_t i = 0; i < n; i++) task(closure, 0, i, i + 1);
  return TILEC_OK;
}

static int test_ranges_outside(void) {
  enum { ROWS = 5, COLUMNS = 8 };
  static float x[ROWS * COLUMNS], y[(ROWS + 2) * COLUMNS];
  static _Alignas(64) char workspace[4096];
  tilec_exec exec = exec_for(NULL, workspace, sizeof(workspace));
  exec.parallel_for = parallel_for_and_more;
  for (int i = 0; i < ROWS * COLUMNS; i++) x[i] = 1;
  for (int i = 0; i < (ROWS + 2) * COLUMNS; i++) y[i] = 7;
  CHECK(sample_normalize(&exec, x, y, ROWS, COLUMNS, COLUMNS) == TILEC_OK);
  for (int i = 0; i < (ROWS + 2) * COLUMNS; i++) CHECK(y[i] == (i < ROWS * COLUMNS ? 1.0f / COLUMNS : 7));
  return 0;
}

/* ---- the library's pool ---- */

static void *call_often(void *failed) {
  float *c = malloc(sizeof(float) * N);
  for (int round = 0; round < 200; round++) {
    int64_t n = 64 * (1 + (round * 37) % 500) - round % 64;
    memset(c, 0, sizeof(float) * (size_t)n);
    if (sample_add(NULL, a, b, c, n) != TILEC_OK || !right(c, n)) *(int *)failed = 1;
  }
  free(c);
  return NULL;
}

static int test_many_callers(void) {
  pthread_t threads[4];
  int failed[4] = {0, 0, 0, 0};
  for (int i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, call_often, &failed[i]) == 0);
  for (int i = 0; i < 4; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  CHECK(failed[0] + failed[1] + failed[2] + failed[3] == 0);
  return 0;
}

static int test_idle_threads_wake(void) {
  static float c[N];
  for (int round = 0; round < 3; round++) {
    usleep(20000); /* long enough for the pool to fall asleep */
    memset(c, 0, sizeof(c));
    CHECK(sample_add(NULL, a, b, c, N) == TILEC_OK && right(c, N));
  }
  return 0;
}

static int test_forked_child(void) {
  static float c[N];
  CHECK(sample_add(NULL, a, b, c, N) == TILEC_OK);
  fflush(stdout);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    alarm(20);
    memset(c, 0, sizeof(c));
    _exit(sample_add(NULL, a, b, c, N) == TILEC_OK && right(c, N) ? 0 : 1);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  CHECK(sample_add(NULL, a, b, c, N) == TILEC_OK && right(c, N));
  return 0;
}

static int test_preload(void) {
  DLDevice cpu, gpu;
  cpu.device_type = kDLCPU;
  gpu.device_type = kDLCUDA;
  cpu.device_id = gpu.device_id = 0;
  CHECK(sample_library()->preload(NULL, cpu) == TILEC_OK);
  CHECK(sample_library()->preload(sample_library()->find("add"), cpu) == TILEC_OK);
  CHECK(sample_library()->preload(NULL, gpu) == TILEC_ERR_NO_ARCH);
  return 0;
}

int main(void) {
  for (int i = 0; i < N; i++) {
    a[i] = (float)(i % 1000);
    b[i] = 1;
  }
  int failed = test_preload() + test_callers_threads() + test_ranges_outside() + test_many_callers() + test_idle_threads_wake() + test_forked_child();
  printf(failed ? "failed\n" : "ok\n");
  return failed;
}
