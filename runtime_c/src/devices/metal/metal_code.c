/* Pipelines from the sources of a library, made once for each device: in preload, or at the first call. */
#include "devices/metal/metal.h"

#include <stdatomic.h>

#include "devices/loaded.h"
#include "status.h"

/* variant_record.code */
static inline loaded_code* metal_code_of(const variant_record* variant) { return variant->code; }

static bool metal_ready(const variant_record* variant) {
  return atomic_load_explicit(&metal_code_of(variant)->ready, memory_order_acquire) & 1;
}

static metal_id metal_string(const char* text) {
  return METAL_TELL(metal_id, const char*)(metal.class_named("NSString"), metal.selectors.string, text);
}

/* Infinities and NaN have to be what they are, which Metal's fast mathematics does not promise. */
static metal_id metal_options(void) {
  metal_id options = METAL_ASK(metal_id)(metal.class_named("MTLCompileOptions"), metal.selectors.new_object);
  METAL_TELL(void, signed char)(options, metal.selectors.set_fast_math, 0);
  METAL_TELL(void, unsigned long)(options, metal.selectors.set_language, METAL_LANGUAGE_3_0);
  return options;
}

static void metal_release(metal_id object) { METAL_ASK(void)(object, metal.selectors.release); }

static tilec_status metal_compile(const kernel_record* kernel, const loaded_image* image,
                                  const metal_device* device) {
  metal_id error = NULL;
  if (image->made[0]) return TILEC_OK;
  metal_id options = metal_options();
  image->made[0] = METAL_TELL(metal_id, metal_id, metal_id, metal_id*)(
      device->object, metal.selectors.library, metal_string(image->data), options, &error);
  metal_release(options);
  if (image->made[0]) return TILEC_OK;
  return metal_fail(TILEC_ERR_DRIVER, kernel->info.name, "compiling its source", error);
}

/* A pipeline whose simdgroups have as many lanes as the code counts with, and that takes all of its threads.
 */
static tilec_status metal_check_pipeline(const kernel_record* kernel, const loaded_launch* launch,
                                         metal_id made) {
  const uint32_t* block = launch->info->block;
  unsigned long threads = (unsigned long)block[0] * block[1] * block[2];
  unsigned long width = METAL_ASK(unsigned long)(made, metal.selectors.width);
  unsigned long most = METAL_ASK(unsigned long)(made, metal.selectors.most_threads);
  if (width == METAL_LANES && most >= threads) return TILEC_OK;
  return fail(TILEC_ERR_DRIVER, "%s: its pipeline has %lu lanes and up to %lu threads, the code %d and %lu",
              kernel->info.name, width, most, METAL_LANES, threads);
}

static tilec_status metal_make_pipeline(const kernel_record* kernel, const loaded_image* image,
                                        const loaded_launch* launch, const metal_device* device) {
  metal_id error = NULL;
  if (launch->made[0]) return TILEC_OK;
  metal_id function =
      METAL_TELL(metal_id, metal_id)(image->made[0], metal.selectors.function, metal_string(launch->symbol));
  if (!function) return metal_fail(TILEC_ERR_DRIVER, kernel->info.name, "finding its function", NULL);
  metal_id made =
      METAL_TELL(metal_id, metal_id, metal_id*)(device->object, metal.selectors.pipeline, function, &error);
  metal_release(function);
  if (!made) return metal_fail(TILEC_ERR_DRIVER, kernel->info.name, "making its pipeline", error);
  tilec_status status = metal_check_pipeline(kernel, launch, made);
  if (status == TILEC_OK)
    launch->made[0] = made;
  else
    metal_release(made);
  return status;
}

static tilec_status metal_make(const kernel_record* kernel, const variant_record* variant,
                               const metal_device* device) {
  loaded_code* code = metal_code_of(variant);
  tilec_status status = metal_compile(kernel, code->image, device);
  for (uint32_t i = 0; status == TILEC_OK && i < variant->info.num_launches; i++)
    status = metal_make_pipeline(kernel, code->image, &code->launches[i], device);
  if (status == TILEC_OK) atomic_fetch_or_explicit(&code->ready, 1, memory_order_release);
  return status;
}

LOCAL tilec_status metal_load(const kernel_record* kernel, const variant_record* variant,
                              const metal_device* device) {
  tilec_status status = TILEC_OK;
  if (LIKELY(metal_ready(variant))) return TILEC_OK;
  void* pool = metal.pool_push();
  metal_lock();
  if (!metal_ready(variant)) status = metal_make(kernel, variant, device);
  metal_unlock();
  metal.pool_pop(pool);
  return status;
}

static tilec_status metal_preload_kernel(const kernel_record* kernel, const metal_device* device) {
  tilec_status status = TILEC_OK;
  for (uint32_t i = 0; status == TILEC_OK && i < kernel->info.num_variants; i++) {
    const variant_record* variant = &kernel->variants[i];
    if (arch_usable(&device->head.archs, variant->arch)) status = metal_load(kernel, variant, device);
  }
  return status;
}

LOCAL tilec_status metal_preload(const kernel_record* only, int32_t number) {
  metal_device* device;
  tilec_status status = metal_device_get(number, &device);
  if (status == TILEC_OK) status = check_archs(this_library.info.name, &device->head.archs);
  for (size_t i = 0; status == TILEC_OK && i < this_library.info.num_kernels; i++) {
    const kernel_record* each = &this_library.kernels[i];
    if (!only || only == each) status = metal_preload_kernel(each, device);
  }
  return status;
}
