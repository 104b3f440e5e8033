/* A stand-in for libamdhip64 over host memory. It takes code objects apart as far as HIP does before it runs
 * them (an ELF file for AMDGPU with a descriptor for each kernel), and hands launches to the function whose
 * address is in FAKE_HIP_DRIVER; those of a graph with its number, and once more without a symbol when it is
 * launched. FAKE_HIP = the names of its devices, with a comma between them; FAKE_HIP_BYTES = of memory that
 * there are. */
#include <elf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { FAILED = 1, NO_MEMORY = 2, NO_DEVICE = 100, BAD_DEVICE = 101, NO_BINARY = 209, NOT_FOUND = 500 };
enum { ELF_FOR_AMDGPU = 224 };
typedef int (*driver)(const void* image, size_t size, const char* symbol, const unsigned* shape, void** params);
typedef struct kernel {
  const char *image, *symbol;
} kernel;

static int current, capturing, loaded;
static uintptr_t graph, graphs; /* the one that is captured; how many there were */
void fake_hip_capture(int on) { capturing = on; } /* 2: another stream than the one of NULL does */
int fake_hip_loaded(void) { return loaded; }

static const char* devices(void) {
  const char* names = getenv("FAKE_HIP");
  return names ? names : "gfx942:sramecc+:xnack-";
}

static size_t image_size(const char* image) {
  const Elf64_Ehdr* head = (const Elf64_Ehdr*)image;
  return head->e_shoff + (size_t)head->e_shnum * head->e_shentsize;
}

/* Whether the table of dynamic symbols has a name. */
static int has_symbol(const char* image, const char* name) {
  const Elf64_Ehdr* head = (const Elf64_Ehdr*)image;
  const Elf64_Shdr* sections = (const Elf64_Shdr*)(image + head->e_shoff);
  for (int i = 0; i < head->e_shnum; i++) {
    if (sections[i].sh_type != SHT_DYNSYM) continue;
    const Elf64_Sym* symbols = (const Elf64_Sym*)(image + sections[i].sh_offset);
    const char* names = image + sections[sections[i].sh_link].sh_offset;
    for (size_t n = 0; n < sections[i].sh_size / sizeof(*symbols); n++)
      if (!strcmp(names + symbols[n].st_name, name)) return 1;
  }
  return 0;
}

int hipInit(unsigned flags) { return (int)flags; }
int hipGetDeviceCount(int* out) {
  const char* names = devices();
  *out = *names != 0;
  for (; *names; names++) *out += *names == ',';
  return *out ? 0 : NO_DEVICE;
}
int hipGetDevice(int* out) { return *out = current, 0; }
int hipSetDevice(int device) {
  int count;
  hipGetDeviceCount(&count);
  return device < count ? (current = device, 0) : BAD_DEVICE;
}
int hipDriverGetVersion(int* out) { return *out = 60443482, 0; }
const char* hipGetErrorName(int result) {
  return result == NO_DEVICE ? "hipErrorNoDevice" : result == NO_MEMORY ? "hipErrorOutOfMemory" : "hipErrorFake";
}
const char* hipGetErrorString(int result) { return result == NO_MEMORY ? "out of memory" : "it is a stand-in"; }

int hipGetDevicePropertiesR0600(void* properties, int device) {
  const char* name = devices();
  for (; device > 0; device--) name = strchr(name, ',') + 1;
  int units = 4;
  strcpy(properties, "AMD Instinct of the tests");
  memcpy((char*)properties + 388, &units, sizeof(units));
  snprintf((char*)properties + 1160, 256, "%.*s", (int)strcspn(name, ","), name);
  return 0;
}

int hipModuleLoadData(void** out, const void* image) {
  const Elf64_Ehdr* head = image;
  if (memcmp(head->e_ident, ELFMAG, SELFMAG) || head->e_machine != ELF_FOR_AMDGPU) return NO_BINARY;
  if ((uintptr_t)image % 4096) return NO_BINARY;
  loaded++;
  return *out = (void*)image, 0;
}

int hipModuleGetFunction(void** out, void* module, const char* name) {
  char descriptor[256];
  snprintf(descriptor, sizeof(descriptor), "%s.kd", name);
  if (!has_symbol(module, descriptor)) return NOT_FOUND;
  kernel* made = malloc(sizeof(*made));
  *made = (kernel){module, name};
  return *out = made, 0;
}

int hipThreadExchangeStreamCaptureMode(int* mode) { return (void)mode, 0; }
int hipStreamIsCapturing(void* stream, int* out) {
  *out = capturing == 1 || graph;
  return !stream && capturing == 2 ? 906 : 0; /* hipErrorStreamCaptureImplicit */
}

int hipModuleLaunchKernel(kernel* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                          unsigned bz, unsigned shared, void* stream, void** params, void** extra) {
  const char* address = getenv("FAKE_HIP_DRIVER");
  unsigned shape[] = {gx, gy, gz, bx, by, bz, shared, (unsigned)graph};
  (void)stream;
  if (!address || extra) return FAILED;
  driver run = (driver)strtoull(address, NULL, 10);
  return run(function->image, image_size(function->image), function->symbol, shape, params);
}

/* ---- memory: a block knows its size ---- */

enum { HEAD = 256 };
static size_t held;

int hipMalloc(void** out, size_t size) {
  const char* most = getenv("FAKE_HIP_BYTES");
  if (most && held + size > strtoull(most, NULL, 10)) return NO_MEMORY;
  size_t* block = aligned_alloc(HEAD, HEAD + (size + HEAD - 1) / HEAD * HEAD);
  held += *block = size;
  return *out = (char*)block + HEAD, 0;
}
int hipMallocManaged(void** out, size_t size, unsigned flags) { return (void)flags, hipMalloc(out, size); }
int hipFree(void* memory) {
  size_t* block = (size_t*)((char*)memory - HEAD);
  held -= *block;
  return free(block), 0;
}
int hipMemcpyHtoD(void* to, const void* from, size_t size) { return memcpy(to, from, size), 0; }
int hipMemcpyDtoH(void* to, const void* from, size_t size) { return memcpy(to, from, size), 0; }
int hipMemsetD8(void* to, unsigned char value, size_t size) { return memset(to, value, size), 0; }
int hipDeviceSynchronize(void) { return 0; }

/* ---- streams, events and graphs: work is done when it is queued ---- */

int hipStreamCreateWithFlags(void** out, unsigned flags) { return (void)flags, *out = &held, 0; }
int hipStreamSynchronize(void* stream) { return stream != &held; }
int hipEventCreateWithFlags(struct timespec** out, unsigned flags) {
  return (void)flags, *out = calloc(1, sizeof(**out)), 0;
}
int hipEventRecord(struct timespec* event, void* stream) {
  return stream != &held || clock_gettime(CLOCK_MONOTONIC, event);
}
int hipEventSynchronize(struct timespec* event) { return event->tv_sec == 0; }
int hipEventElapsedTime(float* out, const struct timespec* start, const struct timespec* end) {
  return *out = (end->tv_sec - start->tv_sec) * 1e3f + (end->tv_nsec - start->tv_nsec) * 1e-6f, 0;
}
int hipStreamBeginCapture(void* stream, int mode) {
  return stream != &held || mode != 2 || graph ? FAILED : (graph = ++graphs, 0);
}
int hipStreamEndCapture(void* stream, uintptr_t* out) {
  return stream != &held || !graph ? FAILED : (*out = graph, graph = 0, 0);
}
int hipGraphInstantiateWithFlags(uintptr_t* out, uintptr_t from, unsigned long long flags) {
  return (void)flags, *out = from, from == 0;
}
int hipGraphDestroy(uintptr_t old) { return old == 0; }
int hipGraphExecDestroy(uintptr_t old) { return old == 0; }
int hipGraphLaunch(uintptr_t number, void* stream) {
  unsigned shape[] = {0, 0, 0, 0, 0, 0, 0, (unsigned)number};
  driver run = (driver)strtoull(getenv("FAKE_HIP_DRIVER"), NULL, 10);
  return stream != &held ? FAILED : run(NULL, 0, NULL, shape, NULL);
}
