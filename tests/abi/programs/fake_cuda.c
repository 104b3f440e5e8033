/* A stand-in for libcuda.so.1 over host memory. It records what it is asked in a log and runs kernels whose
 * name starts with "add". FAKE_CUDA = "<devices> <capability> <driver version>". */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
static int capturing;
static char text[65536];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local int contexts[8];
static _Thread_local int depth;

#define LOG(...)                                                                   \
  do {                                                                             \
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
int cuDeviceGet(int* out, int number) { return *out = number, 0; }
int cuDeviceGetAttribute(int* out, int attribute, int device) {
  (void)device;
  *out = attribute == 16 ? 10 : attribute == 75 ? capability / 10 : capability % 10;
  return 0;
}
int cuDevicePrimaryCtxRetain(void** out, int device) {
  LOG("retain %d\n", device);
  *out = (void*)(intptr_t)(device + 1);
  return 0;
}
int cuCtxGetDevice(int* out) {
  if (depth == 0) return 201;
  *out = contexts[depth - 1];
  return 0;
}
int cuCtxPushCurrent_v2(void* context) {
  contexts[depth++] = (int)(intptr_t)context - 1;
  return 0;
}
int cuCtxPopCurrent_v2(void** out) {
  *out = (void*)(intptr_t)(contexts[--depth] + 1);
  return 0;
}
int fake_cuda_depth(void) { return depth; }
int cuStreamIsCapturing(void* stream, int* out) {
  (void)stream;
  return *out = capturing, 0;
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
int cuKernelGetFunction(void** out, void* kernel) { return *out = kernel, 0; }

int cuTensorMapEncodeTiled(void* out, int dtype, uint32_t rank, void* address, const uint64_t* extents,
                           const uint64_t* strides, const uint32_t* box, const uint32_t* steps, int interleave,
                           int swizzle, int promotion, int fill) {
  (void)address, (void)steps, (void)interleave, (void)promotion, (void)fill;
  if ((uintptr_t)out % 64 || strides[0] % 16) return 1;
  LOG("map dtype %d rank %u extents %d %d stride %d box %u %u swizzle %d\n", dtype, rank, (int)extents[0],
      (int)extents[1], (int)strides[0], box[0], box[1], swizzle);
  snprintf(out, 128, "map of %d", (int)extents[1]);
  return 0;
}

static void run_add(const config* launch, void** arguments) {
  const float *a = *(float**)arguments[0], *b = *(float**)arguments[1];
  float *c = *(float**)arguments[2], alpha = *(float*)arguments[3];
  int64_t n = *(int64_t*)arguments[4];
  for (int64_t i = 0; i < n && i < (int64_t)launch->grid[0] * launch->block[0]; i++)
    c[i] = a[i] + alpha * b[i];
}

int cuLaunchKernelEx(const config* launch, void* kernel, void** arguments, void** extra) {
  const char* name = kernel;
  (void)extra;
  if (depth == 0) return 201;
  if (strstr(name, "fails")) return 719;
  if (strncmp(name, "add", 3) == 0) run_add(launch, arguments);
  if (strcmp(name, "mapped_1") == 0) LOG("argument 3: %s\n", (const char*)arguments[3]);
  LOG("launch %s grid %u %u %u block %u shared %u stream %p cluster %u programmatic %u\n", name, launch->grid[0],
      launch->grid[1], launch->grid[2], launch->block[0], launch->shared, launch->stream,
      attribute_of(launch, 4), attribute_of(launch, 6));
  return 0;
}
