/* Eight threads at once call, select, explain, preload and fail; two of them bring a team of their own, twice as
 * large as the machine, that runs pieces out of order. Meant for the sanitizers. storm [fork] */
#include <pthread.h>
#include <sample.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition)                                                                      \
  do {                                                                                        \
    if (!(condition)) {                                                                       \
      fprintf(stderr, "line %d: %s; last error: %s\n", __LINE__, #condition, sample_last_error()); \
      return 1;                                                                               \
    }                                                                                         \
  } while (0)

enum { THREADS = 8, ROUNDS = 60, BLOCKS = 40, N = 64 * BLOCKS, MOST_WORKERS = 64 };
static float a[N], b[N];
static const DLDevice cpu = {kDLCPU, 0};

static int right(const float *c, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    if (c[i] != a[i] + b[i]) return 0;
  }
  return 1;
}

static tilec_exec exec_with(uint32_t flags) {
  tilec_exec exec;
  memset(&exec, 0, sizeof(exec));
  exec.struct_size = sizeof(exec);
  exec.device = cpu;
  exec.flags = flags;
  return exec;
}

/* ---- what the threads do; the number of the round varies it ---- */

static int add_on_the_pool(int round) {
  float c[N];
  int64_t n = 1 + (round * 997) % N;
  CHECK(sample_add(NULL, a, b, c, n) == TILEC_OK && right(c, n));
  return 0;
}

static int add_alone(int round) {
  float c[N];
  tilec_exec exec = exec_with(TILEC_EXEC_SERIAL);
  int64_t n = 1 + (round * 31) % N;
  CHECK(sample_add(&exec, a, b, c, n) == TILEC_OK && right(c, n));
  return 0;
}

/* A team whose members take single blocks from a shuffled list. */
typedef struct team {
  tilec_task task;
  void *closure;
  int64_t order[BLOCKS], n;
  atomic_llong next;
  atomic_uint members;
  uint32_t workers;
  tilec_status answer;
} team;

static void *member(void *of) {
  team *mine = of;
  uint32_t worker = atomic_fetch_add(&mine->members, 1);
  for (int64_t i; (i = atomic_fetch_add(&mine->next, 1)) < mine->n;)
    mine->task(mine->closure, worker, mine->order[i], mine->order[i] + 1);
  return NULL;
}

static tilec_status run_team(void *pool, int64_t n, int64_t grain, tilec_task task, void *closure) {
  team *mine = pool;
  pthread_t threads[MOST_WORKERS];
  (void)grain;
  mine->task = task;
  mine->closure = closure;
  mine->n = n;
  for (int64_t i = 0; i < n; i++) mine->order[i] = (i * 7 + 3) % n;
  for (uint32_t i = 0; i < mine->workers; i++) {
    if (pthread_create(&threads[i], NULL, member, mine) != 0) abort();
  }
  for (uint32_t i = 0; i < mine->workers; i++) pthread_join(threads[i], NULL);
  return mine->answer;
}

static uint32_t twice_the_cores(void) {
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  return cores < 1 ? 2 : cores > MOST_WORKERS / 2 ? MOST_WORKERS : 2 * (uint32_t)cores;
}

static int add_on_a_team(int round) {
  static _Thread_local _Alignas(64) char workspace[64 * MOST_WORKERS];
  float c[N];
  team mine;
  if (round % 10) return 0; /* threads are dear under a sanitizer */
  memset(&mine, 0, sizeof(mine));
  mine.workers = twice_the_cores();
  mine.answer = round % 20 ? TILEC_ERR_DEVICE : TILEC_OK;
  tilec_exec exec = exec_with(0);
  exec.parallel_for = run_team;
  exec.pool = &mine;
  exec.num_workers = mine.workers;
  exec.workspace = workspace;
  exec.workspace_size = sizeof(workspace);
  tilec_status wanted = mine.answer ? TILEC_ERR_PARTIAL : TILEC_OK;
  CHECK(sample_add(&exec, a, b, c, N) == wanted && right(c, N));
  CHECK(!mine.answer || strstr(sample_last_error(), "parallel_for returned 5"));
  return 0;
}

static int plan(int round) {
  const tilec_library *library = sample_library();
  const tilec_kernel *matmul = library->find("matmul");
  const tilec_variant *found = NULL;
  const int64_t dims[3] = {1 + round % 70, 16, 8};
  char text[4096];
  CHECK(library->select(matmul, cpu, dims, NULL, &found) == TILEC_OK && found);
  CHECK(library->explain(matmul, cpu, dims, NULL, text, sizeof(text)) > 100 && strstr(text, ": taken"));
  return 0;
}

static int preload(int round) {
  const tilec_library *library = sample_library();
  CHECK(library->preload(round % 2 ? NULL : library->find("add"), cpu) == TILEC_OK);
  return 0;
}

static int fail(int round) {
  char wanted[32];
  float c[1];
  snprintf(wanted, sizeof(wanted), "N = -%d ", round + 1);
  CHECK(sample_add(NULL, a, b, c, -(round + 1)) == TILEC_ERR_SHAPE && strstr(sample_last_error(), wanted));
  CHECK(sample_matmul(NULL, a, b, c, 1, 5, 15, round) == TILEC_ERR_NO_VARIANT);
  snprintf(wanted, sizeof(wanted), "K = %d;", round);
  CHECK(strstr(sample_last_error(), wanted));
  return 0;
}

static int normalize(int round) {
  static _Thread_local _Alignas(64) char workspace[1024];
  float x[16 * 8], y[16 * 8];
  size_t size = 0;
  int64_t rows = 1 + round % 16;
  for (int i = 0; i < 16 * 8; i++) x[i] = 1;
  tilec_exec exec = exec_with(0);
  CHECK(sample_normalize_workspace(&exec, rows, 8, 8, &size) == TILEC_OK && size <= sizeof(workspace));
  exec.workspace = workspace;
  exec.workspace_size = size;
  CHECK(sample_normalize(&exec, x, y, rows, 8, 8) == TILEC_OK);
  for (int i = 0; i < rows * 8; i++) CHECK(y[i] == 0.125f);
  return 0;
}

/* ---- all of them ---- */

static int (*const works[THREADS])(int) = {add_on_the_pool, add_on_a_team, plan,      add_alone,
                                           preload,         fail,          normalize, add_on_the_pool};
static pthread_barrier_t start;

static void *work(void *index) {
  int failed = 0;
  pthread_barrier_wait(&start);
  for (int round = 0; round < ROUNDS && !failed; round++) failed = works[(uintptr_t)index](round);
  return (void *)(uintptr_t)failed;
}

static int storm(void) {
  pthread_t threads[THREADS];
  void *failed;
  int any = 0;
  CHECK(pthread_barrier_init(&start, NULL, THREADS) == 0);
  for (uintptr_t i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
  for (int i = 0; i < THREADS; i++) {
    pthread_join(threads[i], &failed);
    any |= failed != NULL;
  }
  return any;
}

/* The child starts over: a pool of its own, all kinds of calls. */
static int storm_in_a_child(void) {
  int status = 0;
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    alarm(30);
    _exit(storm());
  }
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  return 0;
}

int main(int argc, char **argv) {
  (void)argv;
  for (int i = 0; i < N; i++) {
    a[i] = (float)i;
    b[i] = 1;
  }
  if (storm()) return 1;
  if (argc > 1 && (storm_in_a_child() || storm())) return 1;
  printf("ok\n");
  return 0;
}
