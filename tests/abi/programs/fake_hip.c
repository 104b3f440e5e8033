/* A stand-in for libamdhip64 over host memory. It takes code objects apart as far as HIP does before it runs
 * them (an ELF file for AMDGPU with a descriptor for each kernel), and hands launches to the function whose
 * address is in FAKE_HIP_DRIVER. FAKE_HIP = the names of its devices, with a comma between them. */
#include <elf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FAILED = 1, NO_BINARY = 209, NOT_FOUND = 500, ELF_FOR_AMDGPU = 224 };
typedef int (*driver)(const void* image, size_t size, const char* symbol, const unsigned* shape, void** params);
typedef struct kernel {
  const char *image, *symbol;
} kernel;

static int current, capturing, loaded;
void fake_hip_capture(int on) { capturing = on; }
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
  return *out ? 0 : 100;
}
int hipGetDevice(int* out) { return *out = current, 0; }
int hipSetDevice(int device) { return current = device, 0; }
const char* hipGetErrorName(int result) { return result == 100 ? "hipErrorNoDevice" : "hipErrorFake"; }

int hipGetDevicePropertiesR0600(void* properties, int device) {
  const char* name = devices();
  for (; device > 0; device--) name = strchr(name, ',') + 1;
  int units = 4;
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
int hipStreamIsCapturing(void* stream, int* out) { return (void)stream, *out = capturing, 0; }

int hipModuleLaunchKernel(kernel* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                          unsigned bz, unsigned shared, void* stream, void** params, void** extra) {
  const char* address = getenv("FAKE_HIP_DRIVER");
  unsigned shape[] = {gx, gy, gz, bx, by, bz, shared};
  (void)stream;
  if (!address || extra) return FAILED;
  driver run = (driver)strtoull(address, NULL, 10);
  return run(function->image, image_size(function->image), function->symbol, shape, params);
}
