/* Which family a device is of, and which architectures it may run. */
#include "devices/family.h"

#include <string.h>

#include "status.h"

/* The only answer in a library for CPUs alone, so that the compiler leaves all others out. */
INLINE const device_family* family_of(DLDevice device) {
#define X(name) \
  if (device.device_type == name##_family.device_type) return &name##_family;
  (void)device;
  DEVICE_FAMILIES
#undef X
  return &cpu_family;
}

INLINE uintptr_t tensor_begin(DLDevice device, const void* tensor) {
  if (!family_of(device)->handles || !tensor) return (uintptr_t)tensor;
  return (uintptr_t)((const DLTensor*)tensor)->byte_offset;
}

LOCAL const char* device_word(uint32_t device_type) {
  return family_of((DLDevice){.device_type = (DLDeviceType)device_type})->word;
}

LOCAL void text_archs(char* out, size_t size, size_t* used, uint32_t device_type) {
  const char* between = "";
  for (uint32_t i = 0; i < this_library.num_archs; i++) {
    const arch_record* arch = &this_library.archs[i];
    if (arch->device_type != device_type) continue;
    text_append(out, size, used, "%s%s", between, arch->name);
    between = ", ";
  }
}

LOCAL tilec_status check_archs(const char* name, const arch_list* archs) {
  if (LIKELY(archs->status == TILEC_OK)) return TILEC_OK;
  return fail(archs->status, "%s: %s", name, archs->reason);
}

LOCAL bool arch_usable(const arch_list* archs, uint32_t arch) {
  return memchr(archs->archs, (int)arch, archs->count) != NULL;
}
