/* A stand-in for libcuda.so.1 over host memory. It records what it is asked in a log and runs kernels whose
 * name starts with "add" or "scale". FAKE_CUDA = "<devices> <capability> <driver version>". */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct attribute {
  int id;
  unsigned pad, values[16];
} attribute;

typedef struct config {
  unsigned grid[3], block[3], shared;
  void* stream;
  const attribute* attributes;
  unsigned num_attributes;
} config;

/* The first value of a launch attribute; 0 if it is not set. */
static unsigned attribute_of(const config* launch, int id) {
  for (unsigned i = 0; i < launch->num_attributes; i++)
    if (launch->attributes[i].id == id) return launch->attributes[i].values[0];
  return 0;
}

static int devices = 1, capability = 90, version = 12090;
static int capturing, quiet;
static int lost; /* what every call answers since a kernel has failed */
static volatile int hung; /* a kernel that never ends is at work */
static char text[65536];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local int contexts[8];
static _Thread_local int depth;

/* FAKE_CUDA_QUIET: no log, so that no call of the stand-in locks or makes memory. */
#define LOG(...)                                                                   \
  do {                                                                             \
    if (quiet) break;                                                              \
    pthread_mutex_lock(&mutex);                                                    \
    size_t used = strlen(text);                                                    \
    snprintf(text + used, sizeof(text) - used, __VA_ARGS__);                       \
    pthread_mutex_unlock(&mutex);                                                  \
  } while (0)

const char* fake_cuda_log(void) { return text; }
void fake_cuda_capture(int on) { capturing = on; }

int cuInit(unsigned flags) {
  const char* given = getenv("FAKE_CUDA");
  (void)flags;
  quiet = getenv("FAKE_CUDA_QUIET") != NULL;
  if (given && sscanf(given, "%d %d %d", &devices, &capability, &version) != 3) return 1;
  return devices ? 0 : 100;
}
int cuDriverGetVersion(int* out) { return *out = version, 0; }
int cuGetErrorName(int result, const char** out) {
  *out = result == 100 ? "CUDA_ERROR_NO_DEVICE" : "CUDA_ERROR_FAKE";
  return 0;
}
int cuGetErrorString(int result, const char** out) {
  *out = result == 100 ? "no CUDA-capable device is detected" : "a planted failure";
  return 0;
}
int cuDeviceGetCount(int* out) { return *out = devices, 0; }
int cuDeviceGet(int* out, int number) { return *out = number, number < devices ? 0 : 101; }
int cuDeviceGetAttribute(int* out, int attribute, int device) {
  (void)device;
  *out = attribute == 16 ? 10 : attribute == 75 ? capability / 10 : capability % 10;
  return 0;
}
int cuDeviceGetName(char* out, int size, int device) {
  snprintf(out, (size_t)size, "stand-in %d", device);
  return 0;
}

/* ---- contexts: 1 + device for the primary ones, FIRST_MADE + device for others ---- */

enum { FIRST_MADE = 100 };

/* Addresses of nothing: tests make some up. */
static int is_nowhere(const void* address) { return (uintptr_t)address < 65536; }

static int current(void) { return depth ? contexts[depth - 1] : 0; }

static _Atomic unsigned retained; /* a bit per device */

int cuDevicePrimaryCtxRetain(void** out, int device) {
  retained |= 1u << device;
  LOG("retain %d\n", device);
  *out = (void*)(intptr_t)(device + 1);
  return 0;
}
int cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
  return *flags = 0, *active = retained >> device & 1, 0;
}
int cuCtxGetCurrent(void** out) { return *out = (void*)(intptr_t)current(), 0; }
int cuCtxGetDevice(int* out) {
  if (depth == 0) return 201;
  *out = current() < FIRST_MADE ? current() - 1 : current() - FIRST_MADE;
  return 0;
}
int cuCtxPushCurrent_v2(void* context) {
  contexts[depth++] = (int)(intptr_t)context;
  return 0;
}
int cuCtxPopCurrent_v2(void** out) {
  *out = (void*)(intptr_t)contexts[--depth];
  return 0;
}
int cuCtxSetCurrent(void* context) {
  depth -= depth > 0;
  return cuCtxPushCurrent_v2(context);
}
int cuCtxCreate_v2(void** out, unsigned flags, int device) {
  (void)flags;
  *out = (void*)(intptr_t)(FIRST_MADE + device);
  return cuCtxPushCurrent_v2(*out);
}
int cuCtxGetId(void* context, unsigned long long* out) {
  *out = (unsigned long long)(context ? (intptr_t)context : current());
  return 0;
}
int cuCtxDestroy_v2(void* context) {
  depth -= current() == (int)(intptr_t)context;
  return 0;
}
int fake_cuda_depth(void) { return depth; }

/* ---- streams; what one captures is run at once ---- */

typedef struct stream {
  int context, capturing;
} stream;

int cuStreamCreate(stream** out, unsigned flags) {
  (void)flags;
  *out = calloc(1, sizeof(stream));
  (*out)->context = current() ? current() : 1; /* the driver would refuse that */
  return 0;
}
int cuStreamGetCtx(stream* of, void** out) {
  *out = (void*)(intptr_t)(is_nowhere(of) ? current() : of->context);
  return 0;
}
int cuStreamSynchronize(stream* of) { return (void)of, 0; }
int cuStreamBeginCapture_v2(stream* of, int mode) {
  (void)mode;
  return of->capturing = 1, 0;
}
int cuStreamEndCapture(stream* of, void** graph) {
  *graph = of;
  return of->capturing = 0, 0;
}
int cuGraphInstantiateWithFlags(void** out, void* graph, uint64_t flags) {
  (void)flags;
  return *out = graph, 0;
}
int cuGraphLaunch(void* graph, stream* on) { return (void)graph, (void)on, 0; }
int cuStreamIsCapturing(stream* of, int* out) {
  *out = capturing || (!is_nowhere(of) && of->capturing);
  return 0;
}
int cuThreadExchangeStreamCaptureMode(int* mode) {
  (void)mode;
  return 0;
}
int cuLibraryLoadData(void** out, const void* data, int* a, void** b, unsigned c, int* d, void** e, unsigned f) {
  (void)a, (void)b, (void)c, (void)d, (void)e, (void)f;
  if (depth == 0) return 201;
  LOG("load %s\n", (const char*)data);
  *out = (void*)data;
  return 0;
}
int cuLibraryGetKernel(void** out, void* library, const char* name) {
  (void)library;
  *out = strdup(name);
  return 0;
}
int cuKernelSetAttribute(int attribute, int value, void* kernel, int device) {
  LOG("attribute %d = %d of %s on %d\n", attribute, value, (char*)kernel, device);
  return 0;
}

/* A kernel is its name; a function starts with a byte that no name has. */
typedef struct function {
  char mark;
  int context;
  const char* name;
} function;

int cuKernelGetFunction(void** out, void* kernel) {
  function* made = calloc(1, sizeof(function));
  *made = (function){1, current(), kernel};
  return *out = made, 0;
}

int cuTensorMapEncodeTiled(void* out, int dtype, uint32_t rank, void* address, const uint64_t* extents,
                           const uint64_t* strides, const uint32_t* box, const uint32_t* steps, int interleave,
                           int swizzle, int promotion, int fill) {
  (void)steps, (void)interleave, (void)promotion, (void)fill;
  if (lost) return lost;
  if ((uintptr_t)out % 64 || strides[0] % 16) return 1;
  LOG("map dtype %d rank %u extents %d %d stride %d box %u %u swizzle %d\n", dtype, rank, (int)extents[0],
      (int)extents[1], (int)strides[0], box[0], box[1], swizzle);
  snprintf(out, 128, "map of %d", (int)extents[1]);
  memcpy((char*)out + 64, &address, sizeof(address));
  return 0;
}
int cuTensorMapReplaceAddress(void* map, void* address) {
  if (lost) return lost;
  LOG("replace %s\n", (const char*)map);
  memcpy((char*)map + 64, &address, sizeof(address));
  return 0;
}

int cuTensorMapEncodeIm2col(void* out, int dtype, uint32_t rank, void* address, const uint64_t* extents,
                            const uint64_t* strides, const int* lower, const int* upper, uint32_t channels,
                            uint32_t pixels, const uint32_t* steps, int interleave, int swizzle, int promotion,
                            int fill) {
  (void)interleave, (void)promotion, (void)fill;
  if (lost) return lost;
  if ((uintptr_t)out % 64 || strides[0] % 16) return 1;
  LOG("image map dtype %d rank %u extents %d %d corners %d %d steps %u %u box %u %u swizzle %d\n", dtype, rank,
      (int)extents[0], (int)extents[1], lower[0], upper[0], steps[0], steps[1], channels, pixels, swizzle);
  snprintf(out, 128, "map of %d", (int)extents[1]);
  memcpy((char*)out + 64, &address, sizeof(address));
  return 0;
}

/* ---- memory ---- */

int cuMemAlloc_v2(uint64_t* out, size_t size) {
  if (depth == 0) return 201;
  *out = (uint64_t)(uintptr_t)aligned_alloc(256, (size + 255) / 256 * 256);
  return lost;
}
int cuMemFree_v2(uint64_t address) { return free((void*)(uintptr_t)address), lost; }
int cuMemcpyHtoD_v2(uint64_t to, const void* from, size_t size) {
  return memcpy((void*)(uintptr_t)to, from, size), lost;
}
int cuMemcpyDtoH_v2(void* to, uint64_t from, size_t size) {
  return memcpy(to, (void*)(uintptr_t)from, size), lost;
}
int cuCtxSynchronize(void) {
  while (hung) sleep(1);
  return lost;
}

/* y[m, n] = alpha * x[m, n], whose rows start every ld; with the defect that the name tells. */
static void run_scale(const char* name, void** arguments) {
  static int calls;
  const float* x = *(float**)arguments[0];
  float *y = *(float**)arguments[1], alpha = *(float*)arguments[2];
  if (is_nowhere(x)) {
    lost = 700;
    return;
  }
  int64_t m = *(int64_t*)arguments[3], n = *(int64_t*)arguments[4], ld = *(int64_t*)arguments[5];
  for (int64_t i = 0; i < m * n; i++) y[i] = alpha * x[i / n * ld + i % n];
  if (strstr(name, "tail") && n % 2) y[m * n - 1] = 0;
  if (strstr(name, "past")) y[m * n] = 1;
  if (strstr(name, "races")) y[0] += 1e-6f * (float)(calls++ % 2);
  if (strstr(name, "dies")) lost = 700;
  if (strstr(name, "hangs")) hung = 1;
}

static void run_add(const config* launch, void** arguments) {
  const float *a = *(float**)arguments[0], *b = *(float**)arguments[1];
  float *c = *(float**)arguments[2], alpha = *(float*)arguments[3];
  int64_t n = *(int64_t*)arguments[4];
  for (int64_t i = 0; i < n && i < (int64_t)launch->grid[0] * launch->block[0]; i++)
    c[i] = a[i] + alpha * b[i];
}

static _Thread_local int last_context, last_was_function;
int fake_cuda_last_context(void) { return last_context; }
int fake_cuda_last_was_function(void) { return last_was_function; }

/* As the driver does: a function on a stream of another context, or without one beside another current one, is
 * refused; without any context, it has one itself. */
static int check_context(const function* launched, const stream* on) {
  int is_function = launched->mark == 1;
  int context = is_nowhere(on) ? current() : on->context;
  if (!context && is_function && !on) context = launched->context;
  if (!context) return 201;
  last_context = context;
  last_was_function = is_function;
  return is_function && launched->context != context ? 400 : 0;
}

/* An empty tensor has no map. */
static int is_map_of(const char* map, const void* tensor) {
  return !*map || memcmp(map + 64, tensor, sizeof(void*)) == 0;
}

int cuLaunchKernelEx(const config* launch, void* kernel, void** arguments, void** extra) {
  const char* name = ((function*)kernel)->mark == 1 ? ((function*)kernel)->name : kernel;
  int refused = check_context(kernel, launch->stream);
  (void)extra;
  if (refused) return refused;
  if (lost) return lost;
  if (strstr(name, "fails")) return 719;
  if (strncmp(name, "add", 3) == 0) run_add(launch, arguments);
  if (strncmp(name, "scale", 5) == 0) run_scale(name, arguments);
  if (strncmp(name, "mapped", 6) == 0 && strcmp(name, "mapped_0") != 0)
    LOG("argument 3: %s%s\n", (const char*)arguments[3], is_map_of(arguments[3], arguments[0]) ? "" : " elsewhere");
  if (strncmp(name, "per_multiprocessor", 18) == 0)
    LOG("dims %lld %lld %lld%s\n", *(long long*)arguments[2], *(long long*)arguments[3], *(long long*)arguments[4],
        is_map_of(arguments[5], arguments[0]) ? "" : " elsewhere");
  LOG("launch %s grid %u %u %u block %u shared %u stream %p cluster %u programmatic %u%s\n", name, launch->grid[0],
      launch->grid[1], launch->grid[2], launch->block[0], launch->shared, launch->stream,
      attribute_of(launch, 4), attribute_of(launch, 6), attribute_of(launch, 2) ? " cooperative" : "");
  return 0;
}
