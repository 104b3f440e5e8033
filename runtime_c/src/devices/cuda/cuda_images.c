/* Loading: an image once per process, its kernels once per device. Warm calls read one atomic word. */
#include "devices/cuda/cuda.h"

#include <stdatomic.h>
#include <string.h>

#include "dispatch/dispatch.h"

static bool has_bit(const _Atomic uint64_t* word, const cuda_device* device) {
  return atomic_load_explicit(word, memory_order_acquire) >> device->head.number & 1;
}

static void set_bit(_Atomic uint64_t* word, const cuda_device* device) {
  atomic_fetch_or_explicit(word, UINT64_C(1) << device->head.number, memory_order_release);
}

LOCAL bool cuda_ready(const variant_record* variant, const cuda_device* device) {
  return has_bit(&code_of(variant)->ready, device);
}

LOCAL bool cuda_direct(const variant_record* variant, const cuda_device* device) {
  return has_bit(&code_of(variant)->direct, device);
}

static CUresult load_image(const cuda_image* image) {
  CUlibrary library;
  if (*image->library) return CUDA_OK;
  CUresult result = cuda.library_load(&library, image->data, NULL, NULL, 0, NULL, NULL, 0);
  if (result == CUDA_OK) *image->library = library;
  return result;
}

/* cuKernelGetFunction and cuFuncLoad bring the code onto the device now, where the driver would wait for the
 * first launch. */
static CUresult load_kernel(const cuda_image* image, cuda_launch* launch, CUdevice device) {
  CUkernel kernel;
  CUfunction function;
  uint32_t shared = launch->info->smem_dynamic;
  CUresult result = cuda.library_kernel(&kernel, (CUlibrary)*image->library, launch->symbol);
  if (result == CUDA_OK && shared > 0)
    result = cuda.kernel_set_attribute(CU_KERNEL_MAX_DYNAMIC_SHARED, (int)shared, kernel, device);
  if (result == CUDA_OK) result = cuda.kernel_function(&function, kernel);
  if (result == CUDA_OK && cuda.function_load) result = cuda.function_load(function);
  if (result == CUDA_OK && !launch->kernel) launch->kernel = kernel; /* the same on every device */
  return result;
}

static CUresult load_variant(const variant_record* variant, const cuda_device* device) {
  cuda_code* code = code_of(variant);
  CUresult result = load_image(code->image);
  for (uint32_t i = 0; result == CUDA_OK && i < variant->info.num_launches; i++)
    result = load_kernel(code->image, &code->launches[i], device->handle);
  if (result == CUDA_OK) set_bit(&code->ready, device);
  return result;
}

static bool find_functions_of(const variant_record* variant, const cuda_device* device) {
  cuda_launch* launches = code_of(variant)->launches;
  for (uint32_t i = 0; i < variant->info.num_launches; i++) {
    CUfunction function;
    if (cuda.kernel_function(&function, (CUkernel)launches[i].kernel) != CUDA_OK) return false;
    launches[i].functions[device->head.number] = function;
  }
  return true;
}

/* A function belongs to one context: launched on a stream of another one, or without a stream while another
 * one is current, it is refused by the driver. So the checks of both, and of the device, come with the
 * launch. */
LOCAL void cuda_find_functions(const variant_record* variant, cuda_device* device) {
  if (!cuda_in_primary(device)) return;
  cuda_lock();
  if (!cuda_direct(variant, device) && find_functions_of(variant, device))
    set_bit(&code_of(variant)->direct, device);
  cuda_unlock();
}

/* Under cuda_enter. Loading is no part of a capture that this thread may have begun elsewhere. */
LOCAL tilec_status cuda_load(const kernel_record* kernel, const variant_record* variant,
                             cuda_device* device) {
  int mode = CU_CAPTURE_MODE_RELAXED;
  CUresult result = CUDA_OK;
  cuda_lock();
  if (!cuda_ready(variant, device)) {
    cuda.exchange_capture_mode(&mode);
    result = load_variant(variant, device);
    cuda.exchange_capture_mode(&mode);
  }
  cuda_unlock();
  if (result == CUDA_OK) {
    cuda_find_functions(variant, device);
    return TILEC_OK;
  }
  bool too_old = result == CUDA_UNSUPPORTED_PTX_VERSION;
  return cuda_fail(too_old ? TILEC_ERR_DRIVER_TOO_OLD : TILEC_ERR_DRIVER, kernel->info.name,
                   "loading an image", result);
}

/* ---- preload ---- */

static bool has_guard(const variant_record* variant, const tilec_guard* wanted) {
  for (uint32_t i = 0; i < variant->info.num_guards; i++) {
    const tilec_guard* guard = &variant->info.guards[i];
    if (guard->kind == wanted->kind && guard->index == wanted->index && guard->value == wanted->value)
      return true;
  }
  return false;
}

/* Whether `other` admits whatever `variant` admits, as far as equal guards show. */
static bool admits_all_of(const variant_record* other, const variant_record* variant) {
  for (uint32_t i = 0; i < other->info.num_guards; i++) {
    if (!has_guard(variant, &other->info.guards[i])) return false;
  }
  return true;
}

/* Whether dispatch can come to a variant past those of the first `better` architectures. What it cannot reach
 * is not loaded: PTX would take the driver seconds to compile. */
static bool is_reachable(const kernel_record* kernel, const arch_list* archs, uint32_t better,
                         const variant_record* variant) {
  for (uint32_t i = 0; i < kernel->info.num_variants; i++) {
    const variant_record* other = &kernel->variants[i];
    if (memchr(archs->archs, (int)other->arch, better) && admits_all_of(other, variant)) return false;
  }
  return true;
}

static tilec_status preload_arch(const kernel_record* kernel, uint32_t position, cuda_device* device) {
  const arch_list* archs = &device->head.archs;
  tilec_status status = TILEC_OK;
  for (uint32_t i = 0; status == TILEC_OK && i < kernel->info.num_variants; i++) {
    const variant_record* variant = &kernel->variants[i];
    if (variant->arch == archs->archs[position] && is_reachable(kernel, archs, position, variant))
      status = cuda_load(kernel, variant, device);
  }
  return status;
}

static tilec_status preload_kernel(const kernel_record* kernel, cuda_device* device) {
  const variant_record* forced = forced_variant(kernel, &device->head.archs);
  tilec_status status = TILEC_OK;
  if (forced && arch_usable(&device->head.archs, forced->arch)) return cuda_load(kernel, forced, device);
  for (uint32_t i = 0; status == TILEC_OK && i < device->head.archs.count; i++)
    status = preload_arch(kernel, i, device);
  return status;
}

LOCAL tilec_status cuda_preload(const kernel_record* only, int32_t number) {
  cuda_device* device;
  bool pushed;
  tilec_status status = cuda_device_get(number, &device);
  if (status == TILEC_OK) status = check_archs(this_library.info.name, &device->head.archs);
  if (status == TILEC_OK) status = cuda_enter(device, &pushed);
  if (status != TILEC_OK) return status;
  for (size_t i = 0; status == TILEC_OK && i < this_library.info.num_kernels; i++) {
    const kernel_record* each = &this_library.kernels[i];
    if (!only || only == each) status = preload_kernel(each, device);
  }
  cuda_leave(pushed);
  return status;
}
