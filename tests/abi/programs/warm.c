/* Warm calls on the threads of the pool neither allocate nor lock. What the pool itself does, sleep and wake, is no
 * part of that: system calls are not looked at. */
#include <interpose.h>

#include <sample.h>

enum { N = 64 * 100 };
static float a[N], b[N], c[N];

static int call(void) { return sample_add(NULL, a, b, c, N) == TILEC_OK && sample_add(NULL, a, b, c, 100) == TILEC_OK; }

int main(void) {
  if (!call() || allocations + locks == 0) return 1;
  allocations = locks = files = 0;
  for (int i = 0; i < 1000; i++) {
    if (!call()) return 2;
  }
  printf("%ld %ld %ld\n", allocations, locks, files);
  return 0;
}
