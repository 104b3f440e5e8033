/* Pointers that a caller hands back, checked by where they lead before they are believed. */
#include "own.h"

#include "status.h"

LOCAL tilec_status own_kernel(const tilec_kernel* kernel, const kernel_record** out) {
  size_t offset = (uintptr_t)kernel - (uintptr_t)this_library.kernels;
  if (offset % sizeof(kernel_record) == 0 && offset / sizeof(kernel_record) < this_library.info.num_kernels) {
    *out = (const kernel_record*)kernel;
    return TILEC_OK;
  }
  return fail(TILEC_ERR_ARGUMENT, "%s: the kernel is %s", this_library.info.name,
              kernel ? "of another library" : "NULL");
}

LOCAL tilec_status own_variant(const kernel_record* kernel, const tilec_variant* variant,
                               const variant_record** out) {
  uintptr_t offset = (uintptr_t)variant - (uintptr_t)kernel->variants;
  if (offset % sizeof(variant_record) == 0 && offset / sizeof(variant_record) < kernel->info.num_variants) {
    *out = (const variant_record*)variant;
    return TILEC_OK;
  }
  return fail(TILEC_ERR_ARGUMENT, "%s: the variant is of another kernel or library", kernel->info.name);
}
