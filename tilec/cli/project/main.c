/* Calls the library from C. */
#include <stdio.h>

#include "@NAME@.h"

int main(void) {
  enum { N = 1000 };
  static float x[N], y[N], out[N];
  for (int i = 0; i < N; i++) {
    x[i] = (float)i;
    y[i] = 1.0f;
  }
  tilec_status status = @NAME@_saxpy(NULL, x, y, 2.0f, out, N);
  if (status != TILEC_OK) {
    fprintf(stderr, "saxpy: %s\n", @NAME@_last_error());
    return 1;
  }
  printf("out[10] = %g (expected 21)\n", out[10]);
  return out[10] == 21.0f ? 0 : 1;
}
