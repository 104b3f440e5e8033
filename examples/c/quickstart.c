/* Calls both kernels of the quickstart library and prints what they made, for a program to compare:
 *
 *   quickstart n M N K < floats > floats
 *
 * stdin holds x[n], b[n], A[M][K], B[K][N] as raw float32; stdout gets y[n] = 2 x + b and C[M][N] = A B. The
 * time of one warm call of each goes to stderr in microseconds. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "quickstart.h"

static double now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static float* read_floats(int64_t count) {
  float* data = malloc((size_t)count * sizeof(float));
  if (!data || fread(data, sizeof(float), (size_t)count, stdin) != (size_t)count) {
    fprintf(stderr, "short input\n");
    exit(2);
  }
  return data;
}

static void require_ok(tilec_status status, const char* what) {
  if (status == TILEC_OK) return;
  fprintf(stderr, "%s: status %d: %s\n", what, (int)status, quickstart_last_error());
  exit(1);
}

int main(int argc, char** argv) {
  if (argc != 5) {
    fprintf(stderr, "usage: %s n M N K\n", argv[0]);
    return 2;
  }
  int64_t n = atoll(argv[1]), M = atoll(argv[2]), N = atoll(argv[3]), K = atoll(argv[4]);
  float *x = read_floats(n), *b = read_floats(n), *A = read_floats(M * K), *B = read_floats(K * N);
  float *y = malloc((size_t)n * sizeof(float)), *C = malloc((size_t)(M * N) * sizeof(float));
  if (!y || !C) return 2;

  double best[2] = {1e30, 1e30};
  for (int run = 0; run < 20; run++) {
    double start = now_us();
    require_ok(quickstart_scale_add(NULL, x, b, 2.0f, y, n), "scale_add");
    double middle = now_us();
    require_ok(quickstart_matmul(NULL, A, B, C, M, K, N), "matmul");
    double end = now_us();
    if (middle - start < best[0]) best[0] = middle - start;
    if (end - middle < best[1]) best[1] = end - middle;
  }
  fprintf(stderr, "%.1f %.1f\n", best[0], best[1]);
  fwrite(y, sizeof(float), (size_t)n, stdout);
  fwrite(C, sizeof(float), (size_t)(M * N), stdout);
  return 0;
}
