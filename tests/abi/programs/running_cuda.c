/* The stand-in of fake_cuda.c with graphs, events and kernels that run: the first launch <kernel>_<digest>_<number> of
 * a call is a call of <kernel> of the library for CPUs that RUNNING_CUDA names, on the same memory; later ones do
 * nothing. Launches without blocks are not made, be it the first of a kernel. Graphs keep what was launched with the
 * arguments that it had. RUNNING_CUDA_LOG names a file for what was asked. */
#define cuLaunchKernelEx fake_launch
#define cuStreamBeginCapture_v2 fake_begin_capture
#define cuStreamEndCapture fake_end_capture
#define cuGraphInstantiateWithFlags fake_instantiate
#define cuGraphLaunch fake_graph_launch
#define cuMemAlloc_v2 fake_allocate
#include "fake_cuda.c"
#undef cuLaunchKernelEx
#undef cuStreamBeginCapture_v2
#undef cuStreamEndCapture
#undef cuGraphInstantiateWithFlags
#undef cuGraphLaunch
#undef cuMemAlloc_v2

#include <dlfcn.h>
#include <stdbool.h>
#include <stdarg.h>

#include "tilec/tilec.h"

enum { MOST = 64 };

/* A call of a kernel, with values of its parameters in their order, or of a function of the host. */
typedef struct call {
  void (*function)(void*);
  void* data;
  const tilec_kernel* kernel;
  void* tensors[MOST];
  tilec_arg scalars[MOST];
  int64_t dims[MOST];
  struct call* next;
} call;

typedef struct graph {
  call *first, **end;
} graph;

static _Thread_local graph* captured; /* what the stream of this thread captures, if it does */

static void tell(const char* format, ...) {
  const char* path = getenv("RUNNING_CUDA_LOG");
  FILE* file = path ? fopen(path, "a") : NULL;
  va_list values;
  if (!file) return;
  va_start(values, format);
  vfprintf(file, format, values);
  va_end(values);
  fclose(file);
}

static void stop(const char* what, const char* name) {
  fprintf(stderr, "running_cuda: %s %s\n", what, name);
  abort();
}

static void* handle; /* of the library for CPUs */

static const tilec_library* library(void) {
  static const tilec_library* found;
  if (found) return found;
  const char* path = getenv("RUNNING_CUDA");
  handle = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
  if (!handle) stop("RUNNING_CUDA names no library:", path ? dlerror() : "it is not set");
  tilec_library_query_fn query = (tilec_library_query_fn)dlsym(handle, TILEC_LIBRARY_QUERY_SYMBOL);
  return found = query(TILEC_ABI_VERSION);
}

static uint64_t lowest = UINT64_MAX; /* address of memory that was asked for */

int cuMemAlloc_v2(uint64_t* out, size_t size) {
  int result = fake_allocate(out, size);
  if (*out < lowest) lowest = *out;
  return result;
}

/* Places in the order of launches: tensors, parts of the workspace, scalars, dims. A part of the workspace is told from
 * what follows by its size: no integer of a call is as large as an address, and kernels with floats have no workspace. */
static call* read_call(const tilec_kernel* kernel, void** arguments) {
  call* made = calloc(1, sizeof(call));
  bool has_floats = false;
  made->kernel = kernel;
  for (uint32_t i = 0; i < kernel->num_params; i++) {
    has_floats |= kernel->params[i]->tag == TILEC_ARG_FLOAT;
    if (kernel->params[i]->tag == TILEC_ARG_TENSOR) made->tensors[i] = *(void**)*arguments++;
  }
  while (!has_floats && *(uint64_t*)*arguments >= lowest) arguments++;
  for (uint32_t i = 0; i < kernel->num_params; i++) {
    made->scalars[i].tag = kernel->params[i]->tag;
    if (kernel->params[i]->tag == TILEC_ARG_INT) made->scalars[i].v.i = *(int32_t*)*arguments++;
    if (kernel->params[i]->tag == TILEC_ARG_FLOAT) made->scalars[i].v.f = *(float*)*arguments++;
  }
  for (uint32_t i = 0; i < kernel->num_dims; i++) made->dims[i] = *(int64_t*)*arguments++;
  return made;
}

/* The typed door of a kernel takes pointers and integers in their order, and floats, of which a kernel has one at most:
 * those go elsewhere than integers, so that one type of function serves for all. */
typedef tilec_status (*door)(const tilec_exec*, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t,
                             int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t,
                             int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, float);

static void run(const call* made) {
  if (made->function) {
    made->function(made->data);
    return;
  }
  tilec_exec exec = {.struct_size = sizeof exec, .device = {kDLCPU, 0}, .num_workers = 1};
  const tilec_kernel* kernel = made->kernel;
  int64_t v[MOST] = {0};
  float number = 0;
  int used = 0;
  for (uint32_t i = 0; i < kernel->num_params; i++) {
    if (kernel->params[i]->tag == TILEC_ARG_FLOAT) number = (float)made->scalars[i].v.f;
    else v[used++] = kernel->params[i]->tag == TILEC_ARG_INT ? made->scalars[i].v.i : (int64_t)made->tensors[i];
  }
  for (uint32_t i = 0; i < kernel->num_dims; i++) v[used++] = made->dims[i];
  char name[256];
  snprintf(name, sizeof name, "%s_%s", library()->name, kernel->name);
  door function = (door)dlsym(handle, name);
  if (!function || used > 24) stop("no door for", name);
  if (function(&exec, v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8], v[9], v[10], v[11], v[12], v[13], v[14],
               v[15], v[16], v[17], v[18], v[19], v[20], v[21], v[22], v[23], number) != TILEC_OK)
    stop("a kernel failed:", library()->last_error());
}

/* The kernel whose name stands in front of the digest and the number of the launch; NULL for later launches, whose
 * number is greater than that of the one in front. */
static const tilec_kernel* kernel_of(const char* launched) {
  static _Thread_local char last[256];
  static _Thread_local int last_number;
  char name[256];
  snprintf(name, sizeof name, "%s", launched);
  char* number = strrchr(name, '_');
  if (!number) return NULL;
  *number = 0;
  bool is_later = strcmp(name, last) == 0 && atoi(number + 1) > last_number;
  snprintf(last, sizeof last, "%s", name);
  last_number = atoi(number + 1);
  char* digest = strrchr(name, '_');
  if (!digest || is_later) return NULL;
  *digest = 0;
  const tilec_kernel* found = library()->find(name);
  if (!found) stop("no kernel for", launched);
  return found;
}

static void take(call* made, const char* name) {
  tell("%s %s\n", captured ? "capture" : "run", name);
  if (captured) {
    *captured->end = made;
    captured->end = &made->next;
    return;
  }
  run(made);
  free(made);
}

int cuLaunchKernelEx(const config* launch, void* kernel, void** arguments, void** extra) {
  const char* name = ((function*)kernel)->mark == 1 ? ((function*)kernel)->name : kernel;
  const tilec_kernel* found = kernel_of(name);
  (void)launch, (void)extra;
  if (!found) return 0;
  take(read_call(found, arguments), found->name);
  return 0;
}

int cuLaunchHostFunc(stream* on, void (*function)(void*), void* data) {
  call* made = calloc(1, sizeof(call));
  (void)on;
  made->function = function;
  made->data = data;
  take(made, "host");
  return 0;
}

/* ---- graphs ---- */

int cuStreamBeginCapture_v2(stream* of, int mode) {
  (void)mode;
  if (of->capturing) return 1;
  of->capturing = 1;
  captured = calloc(1, sizeof(graph));
  captured->end = &captured->first;
  return 0;
}
int cuStreamEndCapture(stream* of, void** out) {
  of->capturing = 0;
  *out = captured;
  captured = NULL;
  return 0;
}
int cuGraphInstantiateWithFlags(void** out, void* of, uint64_t flags) {
  (void)flags;
  return *out = of, 0;
}
int cuGraphLaunch(void* of, stream* on) {
  (void)on;
  tell("replay\n");
  for (const call* each = ((graph*)of)->first; each; each = each->next) run(each);
  return 0;
}

/* ---- copies of a stream and events: everything has been done when it is asked for ---- */

int cuMemAllocHost_v2(void** out, size_t size) { return *out = malloc(size), 0; }
int cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t size, stream* on) {
  return on->capturing ? 900 : cuMemcpyHtoD_v2(to, from, size);
}
int cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t size, stream* on) {
  return on->capturing ? 900 : cuMemcpyDtoH_v2(to, from, size);
}
int cuEventCreate(void** out, unsigned flags) { return *out = calloc(1, 8 + flags), 0; }
int cuEventRecord(void* event, stream* on) { return (void)event, on->capturing ? 900 : 0; }
int cuEventSynchronize(void* event) { return event ? 0 : 400; }
int cuEventElapsedTime(float* out, void* from, void* to) {
  return *out = 1, from && to ? 0 : 400;
}
