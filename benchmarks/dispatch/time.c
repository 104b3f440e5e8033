/* Nanoseconds of select and of the typed door, by class of shape: p50 and p99, warm and with cold caches.
 *
 * Warm: the mean of CALLS calls in a row, sampled often. Cold: one call after this thread has read COLD_BYTES
 * of other memory, less what two readings of the clock take. Prints a line per class and way. */
#include <time.h>

#include "calls.h"

enum { CALLS = 16, WARM_SAMPLES = 20000, COLD_SAMPLES = 300, COLD_BYTES = 32 << 20 };

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static int ascending(const void* a, const void* b) {
  return (*(const double*)a > *(const double*)b) - (*(const double*)a < *(const double*)b);
}

static double clock_cost(void) {
  enum { READINGS = 1001 };
  static double costs[READINGS];
  for (int i = 0; i < READINGS; i++) {
    double start = now();
    costs[i] = now() - start;
  }
  qsort(costs, READINGS, sizeof(double), ascending);
  return costs[READINGS / 2];
}

static void sample_warm(int way, int which, double* out) {
  int right = 1;
  for (int i = 0; i < SHAPES; i++) right &= call(way, which, i);
  for (int sample = 0; sample < WARM_SAMPLES; sample++) {
    int first = sample * CALLS % SHAPES;
    double start = now();
    for (int i = 0; i < CALLS; i++) right &= call(way, which, first + i);
    out[sample] = (now() - start) / CALLS;
  }
  if (!right) fail(class_names[which]);
}

static volatile uint64_t sink;

static void sample_cold(int way, int which, double overhead, double* out) {
  static uint64_t other[COLD_BYTES / sizeof(uint64_t)];
  for (int sample = 0; sample < COLD_SAMPLES; sample++) {
    for (size_t i = 0; i < COLD_BYTES / sizeof(uint64_t); i += 8) sink += other[i]++;
    double start = now();
    if (!call(way, which, sample)) fail(class_names[which]);
    double cost = now() - start - overhead;
    out[sample] = cost > 0 ? cost : 0;
  }
}

static void print_sorted(double* samples, int count) {
  qsort(samples, (size_t)count, sizeof(double), ascending);
  printf(" %.1f %.1f", samples[count / 2], samples[count * 99 / 100]);
}

int main(int argc, char** argv) {
  static double samples[WARM_SAMPLES];
  double overhead = clock_cost();
  if (argc != 2) return 2;
  load(argv[1]);
  for (int which = 0; which < CLASSES; which++) {
    for (int way = 0; way < WAYS; way++) {
      printf("%s %s", class_names[which], way_names[way]);
      sample_warm(way, which, samples);
      print_sorted(samples, WARM_SAMPLES);
      sample_cold(way, which, overhead, samples);
      print_sorted(samples, COLD_SAMPLES);
      printf("\n");
    }
  }
  return 0;
}
