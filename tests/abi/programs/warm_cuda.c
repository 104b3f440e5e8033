/* Warm CUDA calls do nothing but ask the driver: counted with the stand-in, which is quiet. */
#include <interpose.h>

#include <gpu_sample.h>
#include <string.h>

enum { N = 64 };
static _Alignas(64) float a[N], b[N], c[N];
static _Alignas(64) int32_t x[8 * N];

static int call_all(void) {
  tilec_exec run;
  memset(&run, 0, sizeof(run));
  run.struct_size = sizeof(run);
  run.device.device_type = kDLCUDA;
  for (int i = 0; i < 100; i++) {
    if (gpu_sample_add(&run, a, b, c, 1.0f, N) != TILEC_OK) return 0;
    if (gpu_sample_mapped(&run, x, 3, 8) != TILEC_OK) return 0;
    if (gpu_sample_persistent(&run, x, 1, 8 * (i % 8)) != TILEC_OK) return 0;
  }
  return 1;
}

int main(void) { return report_warm(call_all, call_all); }
