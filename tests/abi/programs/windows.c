/* What loader.py does, on Windows: LoadLibrary, the query, kernels by name, launches with tensors, from several
 * threads that end meanwhile. The library is the quickstart's, its path the first argument. */
#include <windows.h>

#include <stdio.h>
#include <string.h>
#include <tilec/tilec.h>

#define CHECK(condition)                                    \
  do {                                                      \
    if (!(condition)) {                                     \
      printf("line %d: %s\n", __LINE__, #condition);        \
      return 1;                                             \
    }                                                       \
  } while (0)

enum { M = 70, N = 130, K = 90, CALLERS = 4, CALLS = 20 };
static float a[M * K], b[K * N], expected[M * N];
static const tilec_library *library;

static DLTensor tensor(float *data, int64_t *shape) {
  DLTensor made;
  memset(&made, 0, sizeof(made));
  made.data = data;
  made.device.device_type = kDLCPU;
  made.ndim = 2;
  made.dtype = (DLDataType){kDLFloat, 32, 1};
  made.shape = shape;
  return made;
}

static tilec_status multiply(float *c, int64_t rows_of_b) {
  int64_t shapes[3][2] = {{M, K}, {rows_of_b, N}, {M, N}};
  DLTensor tensors[3] = {tensor(a, shapes[0]), tensor(b, shapes[1]), tensor(c, shapes[2])};
  tilec_exec exec;
  tilec_arg args[3];
  memset(&exec, 0, sizeof(exec));
  memset(args, 0, sizeof(args));
  exec.struct_size = sizeof(exec);
  exec.device.device_type = kDLCPU;
  for (int i = 0; i < 3; i++) {
    args[i].tag = TILEC_ARG_TENSOR;
    args[i].v.tensor = &tensors[i];
  }
  return library->launch(library->find("matmul"), &exec, args, 3);
}

static int is_right(const float *c) {
  for (int i = 0; i < M * N; i++) {
    float off = c[i] - expected[i];
    if (off > 1e-3f || off < -1e-3f) return 0;
  }
  return 1;
}

static DWORD WINAPI call_many_times(LPVOID wrong) {
  static __thread float c[M * N];
  for (int call = 0; call < CALLS; call++) {
    memset(c, 0, sizeof(c));
    if (multiply(c, K) != TILEC_OK || !is_right(c)) InterlockedIncrement(wrong);
    if (multiply(c, K + 1) == TILEC_OK || !*library->last_error()) InterlockedIncrement(wrong);
  }
  return 0;
}

static void fill(void) {
  for (int i = 0; i < M * K; i++) a[i] = (float)(i % 13 - 6) / 8;
  for (int i = 0; i < K * N; i++) b[i] = (float)(i % 7 - 3) / 4;
  for (int i = 0; i < M * N; i++) {
    for (int k = 0; k < K; k++) expected[i] += a[i / N * K + k] * b[k * N + i % N];
  }
}

int main(int argc, char **argv) {
  const tilec_library *(*query)(uint32_t);
  HANDLE threads[CALLERS];
  volatile LONG wrong = 0;
  HMODULE file = argc == 2 ? LoadLibraryA(argv[1]) : NULL;
  CHECK(file != NULL);
  FARPROC found = GetProcAddress(file, "tilec_library_query");
  CHECK(found != NULL);
  memcpy(&query, &found, sizeof(query));
  library = query(TILEC_ABI_VERSION);
  CHECK(library != NULL);
  fill();
  for (int i = 0; i < CALLERS; i++) threads[i] = CreateThread(NULL, 0, call_many_times, (LPVOID)&wrong, 0, NULL);
  WaitForMultipleObjects(CALLERS, threads, TRUE, INFINITE);
  CHECK(wrong == 0);
  CHECK(FreeLibrary(file)); /* its threads are still asleep inside */
  static float c[M * N];
  CHECK(multiply(c, K) == TILEC_OK && is_right(c));
  puts("ok");
  return 0;
}
