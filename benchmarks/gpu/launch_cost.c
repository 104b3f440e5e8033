/* What a warm call of the typed door costs the calling thread, beside the
 * driver's own launch of an empty kernel with the same parameters. Prints one
 * line of JSON, in nanoseconds (medians over batches). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <gpu_bundle.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BATCHES = 1000, CALLS = 32 };

typedef struct launch_config {
  unsigned grid[3], block[3], shared;
  void *stream;
  void *attributes;
  unsigned num_attributes;
} launch_config;

static int (*launch_kernel)(const launch_config *, void *, void **, void **);
static int (*synchronize)(void);

/* The parameters of scale_add, then of matmul with its three tensor maps;
 * nothing is done with them. */
static const char ptx[] =
    ".version 7.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry plain(.param .u64 x, .param .u64 b, .param .u64 y, .param "
    ".f32 a, .param .u64 n) { ret; }\n"
    ".visible .entry mapped(.param .u64 a, .param .u64 b, .param .u64 c, "
    ".param .u64 m, .param .u64 k,\n"
    ".param .u64 n, .param .align 64 .b8 p[128], .param .align 64 .b8 q[128], "
    ".param .align 64 .b8 r[128])\n"
    "{ ret; }\n";

static void *driver(const char *name) {
  static void *handle;
  if (!handle)
    handle = dlopen("libcuda.so.1", RTLD_NOW);
  void *found = handle ? dlsym(handle, name) : NULL;
  if (found)
    return found;
  fprintf(stderr, "no %s\n", name);
  exit(1);
}

static void check(int result, const char *what) {
  if (result == 0)
    return;
  fprintf(stderr, "%s: %d; %s\n", what, result, gpu_bundle_last_error());
  exit(1);
}

static void *memory;
static void *kernels[2], *functions[2]; /* the same code as CUkernel and CUfunction */
static tilec_exec run = {.struct_size = sizeof(tilec_exec),
                         .device = {kDLCUDA, 0}};

static void *part(size_t at) { return (char *)memory + (at << 20); }

static void ours_plain(void) {
  check(
      gpu_bundle_scale_add_float32(&run, part(0), part(1), 2.0f, part(2), 1024),
      "scale_add");
}

static void ours_mapped(void) {
  check(
      gpu_bundle_matmul_float16(&run, part(0), part(1), part(2), 128, 64, 256),
      "matmul");
}

static void launch_empty(void *code, int which, unsigned threads) {
  static _Alignas(64) char maps[3][128];
  void *a = part(0), *b = part(1), *c = part(2);
  float alpha = 2.0f;
  long sizes[3] = {1024, 1024, 1024};
  void *plain[] = {&a, &b, &c, &alpha, &sizes[0]};
  void *mapped[] = {&a,        &b,      &c,      &sizes[0], &sizes[1],
                    &sizes[2], maps[0], maps[1], maps[2]};
  launch_config config = {.grid = {1, 1, 1}, .block = {threads, 1, 1}};
  check(launch_kernel(&config, code, which ? mapped : plain, NULL),
        "cuLaunchKernelEx");
}

static void kernel_plain(void) { launch_empty(kernels[0], 0, 128); }
static void kernel_mapped(void) { launch_empty(kernels[1], 1, 384); }
static void function_plain(void) { launch_empty(functions[0], 0, 128); }
static void function_mapped(void) { launch_empty(functions[1], 1, 384); }

static int (*encode)(void *, int, unsigned, void *, const uint64_t *,
                     const uint64_t *, const uint32_t *, const uint32_t *, int,
                     int, int, int);
static void encode_map(void) {
  static _Alignas(64) char map[128];
  const uint64_t extents[2] = {64, 128}, strides[1] = {128};
  const uint32_t box[2] = {64, 64}, steps[2] = {1, 1};
  enum { FLOAT16 = 6, NO_INTERLEAVE = 0, SWIZZLE_128B = 3, PROMOTE_128B = 2 };
  check(encode(map, FLOAT16, 2, part(0), extents, strides, box, steps,
               NO_INTERLEAVE, SWIZZLE_128B, PROMOTE_128B, 0),
        "cuTensorMapEncodeTiled");
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static int compare(const void *left, const void *right) {
  double a = *(const double *)left, b = *(const double *)right;
  return (a > b) - (a < b);
}

typedef struct contestant {
  const char *name;
  void (*call)(void);
  double times[BATCHES];
} contestant;

static contestant contestants[] = {
    {.name = "driver, CUkernel", .call = kernel_plain},
    {.name = "driver, CUfunction", .call = function_plain},
    {.name = "typed door", .call = ours_plain},
    {.name = "driver, CUkernel, 3 maps", .call = kernel_mapped},
    {.name = "driver, CUfunction, 3 maps", .call = function_mapped},
    {.name = "typed door, 3 maps", .call = ours_mapped},
    {.name = "one map, encoded by the driver", .call = encode_map},
};
enum { CONTESTANTS = sizeof(contestants) / sizeof(contestants[0]) };

/* Nanoseconds of one call, its queue being empty before. */
static double time_batch(void (*call)(void)) {
  check(synchronize(), "cuCtxSynchronize");
  double start = now();
  for (int i = 0; i < CALLS; i++)
    call();
  return (now() - start) / CALLS;
}

/* In turns, so that a clock that changes changes for all. */
static void measure(void) {
  for (int batch = -20; batch < BATCHES; batch++) {
    for (int i = 0; i < CONTESTANTS; i++) {
      double time = time_batch(contestants[i].call);
      if (batch >= 0)
        contestants[i].times[batch] = time;
    }
  }
}

static double median(contestant *of) {
  qsort(of->times, BATCHES, sizeof(of->times[0]), compare);
  return of->times[BATCHES / 2];
}

static void start(void) {
  void *context, *library;
  check(((int (*)(unsigned))driver("cuInit"))(0), "cuInit");
  check(
      ((int (*)(void **, int))driver("cuDevicePrimaryCtxRetain"))(&context, 0),
      "cuDevicePrimaryCtxRetain");
  check(((int (*)(void *))driver("cuCtxSetCurrent"))(context),
        "cuCtxSetCurrent");
  check(((int (*)(void **, size_t))driver("cuMemAlloc_v2"))(&memory, 4 << 20),
        "cuMemAlloc");
  check(((int (*)(void **, const void *, void *, void *, unsigned, void *,
                  void *, unsigned))driver("cuLibraryLoadData"))(
            &library, ptx, NULL, NULL, 0, NULL, NULL, 0),
        "cuLibraryLoadData");
  int (*get)(void **, void *, const char *) =
      (int (*)(void **, void *, const char *))driver("cuLibraryGetKernel");
  check(get(&kernels[0], library, "plain"), "plain");
  check(get(&kernels[1], library, "mapped"), "mapped");
  int (*function)(void **, void *) =
      (int (*)(void **, void *))driver("cuKernelGetFunction");
  for (int i = 0; i < 2; i++)
    check(function(&functions[i], kernels[i]), "cuKernelGetFunction");
  launch_kernel = (int (*)(const launch_config *, void *, void **,
                           void **))driver("cuLaunchKernelEx");
  synchronize = (int (*)(void))driver("cuCtxSynchronize");
  encode = (int (*)(void *, int, unsigned, void *, const uint64_t *,
                    const uint64_t *, const uint32_t *, const uint32_t *, int,
                    int, int, int))driver("cuTensorMapEncodeTiled");
}

int main(void) {
  start();
  measure();
  for (int i = 0; i < CONTESTANTS; i++)
    printf("%s\"%s\": %.0f", i ? ", " : "{", contestants[i].name,
           median(&contestants[i]));
  printf("}\n");
  return 0;
}
