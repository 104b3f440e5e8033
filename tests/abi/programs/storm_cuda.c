/* Eight threads at once on the stand-in for the driver: calls on two devices, select, preload, failures. */
#include <gpu_sample.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define CHECK(condition)                                                                              \
  do {                                                                                                \
    if (!(condition)) {                                                                               \
      fprintf(stderr, "line %d: %s; last error: %s\n", __LINE__, #condition, gpu_sample_last_error()); \
      return (void *)1;                                                                               \
    }                                                                                                 \
  } while (0)

enum { THREADS = 8, ROUNDS = 40, N = 128 };
static pthread_barrier_t start;

static void *work(void *index) {
  _Alignas(64) float a[N], c[N];
  _Alignas(64) int32_t x[64];
  const tilec_library *library = gpu_sample_library();
  const tilec_variant *found = NULL;
  const int64_t n = N;
  tilec_exec exec;
  memset(&exec, 0, sizeof(exec));
  exec.struct_size = sizeof(exec);
  exec.device.device_type = kDLCUDA;
  pthread_barrier_wait(&start);
  for (int round = 0; round < ROUNDS; round++) {
    exec.device.device_id = (int)((round + (uintptr_t)index) % 2);
    for (int i = 0; i < N; i++) a[i] = (float)i;
    CHECK(gpu_sample_add(&exec, a, a, c, 1.0f, N) == TILEC_OK && c[N - 1] == 2 * (N - 1));
    CHECK(gpu_sample_mapped(&exec, x, 3, 8) == TILEC_OK);
    CHECK(gpu_sample_broken(&exec, x, 1, 4) == TILEC_ERR_PARTIAL);
    CHECK(library->select(library->find("add"), exec.device, &n, NULL, &found) == TILEC_OK);
    if ((uintptr_t)index % 4 == 0) CHECK(library->preload(NULL, exec.device) == TILEC_OK);
  }
  return NULL;
}

int main(void) {
  pthread_t threads[THREADS];
  void *failed;
  int any = 0;
  pthread_barrier_init(&start, NULL, THREADS);
  for (uintptr_t i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, (void *)i);
  for (int i = 0; i < THREADS; i++) {
    pthread_join(threads[i], &failed);
    any |= failed != NULL;
  }
  if (!any) printf("ok\n");
  return any;
}
