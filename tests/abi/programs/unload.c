/* Libraries that come and go: unload FIRST SECOND opens and closes both a thousand times, each under the same
 * symbol tilec_library_query, while threads that got a table go on calling. */
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <tilec/tilec.h>

#define CHECK(condition)                                           \
  do {                                                             \
    if (!(condition)) {                                            \
      printf("line %d: %s\n", __LINE__, #condition);               \
      return 1;                                                    \
    }                                                              \
  } while (0)

enum { ROUNDS = 1000, CALLERS = 3, N = 64 * 40 };
static const char *paths[2];
static atomic_int stop, wrong, calls;

typedef struct opened { void *handle; const tilec_library *library; } opened;

static opened open_library(const char *path) {
  opened made = {dlopen(path, RTLD_NOW | RTLD_LOCAL), NULL};
  tilec_library_query_fn query;
  if (!made.handle) return made;
  *(void **)&query = dlsym(made.handle, TILEC_LIBRARY_QUERY_SYMBOL);
  made.library = query ? query(TILEC_ABI_VERSION) : NULL;
  return made;
}

/* c = a + b through the generic door; the last element says whether it ran. */
static int add(const tilec_library *library, uint32_t flags) {
  float a[N], c[N];
  int64_t shape[1] = {N};
  DLTensor in, out;
  tilec_arg args[3];
  tilec_exec exec;
  for (int i = 0; i < N; i++) a[i] = (float)i;
  memset(&exec, 0, sizeof(exec));
  exec.struct_size = sizeof(exec);
  exec.device.device_type = kDLCPU;
  exec.flags = flags;
  memset(&in, 0, sizeof(in));
  in.data = a;
  in.device = exec.device;
  in.ndim = 1;
  in.dtype.code = kDLFloat;
  in.dtype.bits = 32;
  in.dtype.lanes = 1;
  in.shape = shape;
  out = in;
  out.data = c;
  memset(args, 0, sizeof(args));
  for (int i = 0; i < 3; i++) {
    args[i].tag = TILEC_ARG_TENSOR;
    args[i].v.tensor = i < 2 ? &in : &out;
  }
  return library->launch(library->find("add"), &exec, args, 3) == TILEC_OK && c[N - 1] == 2.0f * (N - 1);
}

static void *call_until_stopped(void *flags) {
  opened mine = open_library(paths[0]);
  const tilec_library *library = mine.library;
  dlclose(mine.handle); /* what was found stays: the library is never unloaded */
  while (!atomic_load(&stop)) {
    if (!add(library, (uint32_t)(uintptr_t)flags)) atomic_store(&wrong, 1);
    atomic_fetch_add(&calls, 1);
  }
  return NULL;
}

static int round_of(int round) {
  opened first = open_library(paths[round % 2]), second = open_library(paths[1 - round % 2]);
  CHECK(first.library && second.library && first.library != second.library);
  CHECK(strcmp(first.library->name, second.library->name) != 0);
  CHECK(add(first.library, 0) && add(second.library, 0));
  CHECK(second.library->launch(second.library->find("add"), NULL, NULL, 1) == TILEC_ERR_ARGUMENT);
  CHECK(strstr(second.library->last_error(), "add: got 1 arguments"));
  CHECK(first.library->last_error()[0] == '\0'); /* failures are per library */
  CHECK(first.library->launch(second.library->find("add"), NULL, NULL, 0) == TILEC_ERR_ARGUMENT);
  CHECK(dlclose(first.handle) == 0 && dlclose(second.handle) == 0);
  return 0;
}

static int first_error_of_each(void) {
  for (int i = 0; i < 2; i++) {
    opened one = open_library(paths[i]);
    CHECK(one.library && one.library->last_error()[0] == '\0');
    dlclose(one.handle);
  }
  return 0;
}

static int open_and_close_often(void) {
  for (int round = 0; round < ROUNDS; round++) {
    opened first = open_library(paths[round % 2]);
    CHECK(first.library && add(first.library, TILEC_EXEC_SERIAL));
    CHECK(dlclose(first.handle) == 0);
  }
  return 0;
}

int main(int argc, char **argv) {
  pthread_t threads[CALLERS];
  CHECK(argc == 3);
  paths[0] = argv[1];
  paths[1] = argv[2];
  if (first_error_of_each() || round_of(0)) return 1;
  for (int i = 0; i < CALLERS; i++) {
    void *flags = (void *)(uintptr_t)(i % 2 ? TILEC_EXEC_SERIAL : 0);
    CHECK(pthread_create(&threads[i], NULL, call_until_stopped, flags) == 0);
  }
  int failed = open_and_close_often();
  while (atomic_load(&calls) <= CALLERS) sched_yield();
  atomic_store(&stop, 1);
  for (int i = 0; i < CALLERS; i++) pthread_join(threads[i], NULL);
  CHECK(!failed);
  CHECK(!atomic_load(&wrong));
  printf("ok\n");
  return 0;
}
