/* What a kernel that asks for multiprocessors gets on a CPU, with TILEC_NUM_THREADS=8; dims of the typed door and
 * of the table are those of the shapes alone. */
#include <asking.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                                  \
  do {                                                                                    \
    if (!(condition)) {                                                                   \
      printf("line %d: %s; last error: %s\n", __LINE__, #condition, asking_last_error()); \
      exit(1);                                                                            \
    }                                                                                     \
  } while (0)

static int32_t pieces(void* pool, int64_t n, int64_t grain, tilec_task task, void* closure) {
  (void)pool, (void)grain;
  task(closure, 0, 0, n);
  return TILEC_OK;
}

static int32_t answer(const tilec_exec* exec) {
  int32_t count = -1;
  CHECK(asking_count(exec, &count) == TILEC_OK);
  return count;
}

static size_t room(const tilec_exec* exec) {
  size_t bytes = 0;
  CHECK(asking_total_workspace(exec, 100, &bytes) == TILEC_OK);
  return bytes;
}

int main(void) {
  static _Alignas(64) char memory[8 * 64];
  float values[100], sum = 0;
  tilec_exec exec = {.struct_size = sizeof(exec), .device = {.device_type = kDLCPU}};
  for (int i = 0; i < 100; i++) values[i] = (float)i;

  CHECK(answer(NULL) == 8 && answer(&exec) == 8 && room(&exec) == 8 * 64);
  exec.num_workers = 3;
  CHECK(answer(&exec) == 3 && room(&exec) == 3 * 64);
  exec.flags = TILEC_EXEC_SERIAL;
  CHECK(answer(&exec) == 1 && room(&exec) == 64);
  exec.flags = 0;
  exec.num_workers = 5;
  exec.parallel_for = pieces;
  CHECK(answer(&exec) == 5);

  exec.parallel_for = NULL;
  exec.workspace = memory;
  for (uint32_t workers = 1; workers <= 8; workers++) {
    exec.num_workers = workers;
    exec.workspace_size = 64 * workers;
    CHECK(asking_total(&exec, values, &sum, 100) == TILEC_OK && sum == 4950);
    exec.workspace_size -= 1;
    CHECK(asking_total(&exec, values, &sum, 100) == TILEC_ERR_WORKSPACE);
  }
  CHECK(asking_library()->kernels[2]->num_dims == 1);
  puts("ok");
  return 0;
}
