/* Loading, once for each device, and one call: everything is sized, loaded and checked before the first
 * launch. */
#include "devices/hip/hip.h"

#include <stdatomic.h>

#include "arguments/device_args.h"
#include "arith.h"
#include "devices/loaded.h"
#include "launch/slices.h"
#include "status.h"

enum { MAX_HIP_ARGS = MAX_PARAMS + MAX_SLICES + MAX_DIMS };

typedef struct hip_launches {
  int64_t grids[3 * MAX_LAUNCHES];
  void* pointers[MAX_HIP_ARGS];
  void* slices[MAX_SLICES];
  float floats[MAX_PARAMS];
} hip_launches;

/* variant_record.code */
static inline loaded_code* hip_code_of(const variant_record* variant) { return variant->code; }

/* ---- loading ---- */

static bool hip_ready(const variant_record* variant, const hip_device* device) {
  return atomic_load_explicit(&hip_code_of(variant)->ready, memory_order_acquire) >> device->head.number & 1;
}

static hipError hip_load_image(const loaded_image* image, const hip_device* device) {
  hipModule module;
  if (image->made[device->head.number]) return HIP_OK;
  hipError result = hip.module_load(&module, image->data);
  if (result == HIP_OK) image->made[device->head.number] = module;
  return result;
}

static hipError hip_load_variant(const variant_record* variant, const hip_device* device) {
  loaded_code* code = hip_code_of(variant);
  hipError result = hip_load_image(code->image, device);
  for (uint32_t i = 0; result == HIP_OK && i < variant->info.num_launches; i++) {
    hipFunction function;
    result = hip.module_function(&function, code->image->made[device->head.number], code->launches[i].symbol);
    if (result == HIP_OK) code->launches[i].made[device->head.number] = function;
  }
  if (result == HIP_OK)
    atomic_fetch_or_explicit(&code->ready, UINT64_C(1) << device->head.number, memory_order_release);
  return result;
}

/* Under hip_enter. Loading is no part of a capture that this thread may have begun elsewhere. */
static tilec_status hip_load(const kernel_record* kernel, const variant_record* variant,
                             const hip_device* device) {
  int mode = HIP_CAPTURE_MODE_RELAXED;
  hipError result = HIP_OK;
  hip_lock();
  if (!hip_ready(variant, device)) {
    hip.exchange_capture_mode(&mode);
    result = hip_load_variant(variant, device);
    hip.exchange_capture_mode(&mode);
  }
  hip_unlock();
  if (result == HIP_OK) return TILEC_OK;
  return hip_fail(TILEC_ERR_DRIVER, kernel->info.name, "loading a code object", result);
}

/* As on CUDA the stream NULL cannot be asked while another one captures: that answer means capturing too. */
static tilec_status hip_ensure_loaded(const kernel_record* kernel, const variant_record* variant,
                                      const tilec_exec* exec, const hip_device* device) {
  int capturing = HIP_CAPTURE_NONE;
  if (LIKELY(hip_ready(variant, device))) return TILEC_OK;
  hipError result = hip.stream_is_capturing((hipStream)exec->stream, &capturing);
  if (capturing != HIP_CAPTURE_NONE || result == HIP_CAPTURE_IMPLICIT) {
    return fail(TILEC_ERR_NOT_PRELOADED,
                "%s: variant %u is not loaded and the stream is capturing; preload() first",
                kernel->info.name, variant->info.id);
  }
  if (result != HIP_OK) return hip_fail(TILEC_ERR_DEVICE, kernel->info.name, "asking the stream", result);
  return hip_load(kernel, variant, device);
}

static tilec_status hip_preload_kernel(const kernel_record* kernel, const hip_device* device) {
  tilec_status status = TILEC_OK;
  for (uint32_t i = 0; status == TILEC_OK && i < kernel->info.num_variants; i++) {
    const variant_record* variant = &kernel->variants[i];
    if (arch_usable(&device->head.archs, variant->arch)) status = hip_load(kernel, variant, device);
  }
  return status;
}

LOCAL tilec_status hip_preload(const kernel_record* only, int32_t number) {
  hip_device* device;
  int before;
  tilec_status status = hip_device_get(number, &device);
  if (status == TILEC_OK) status = check_archs(this_library.info.name, &device->head.archs);
  if (status == TILEC_OK) status = hip_enter(device, &before);
  if (status != TILEC_OK) return status;
  for (size_t i = 0; status == TILEC_OK && i < this_library.info.num_kernels; i++) {
    const kernel_record* each = &this_library.kernels[i];
    if (!only || only == each) status = hip_preload_kernel(each, device);
  }
  hip_leave(device, before);
  return status;
}

/* ---- launching ---- */

/* A dispatch counts threads in 32 bits along each axis, and HIP blocks along y and z in 16. */
static tilec_status hip_check_grid(const kernel_record* kernel, const tilec_launch_info* info,
                                   const int64_t* grid) {
  for (int axis = 0; axis < 3; axis++) {
    int64_t most = axis == 0 ? UINT32_MAX / info->block[0] : 65535;
    if (LIKELY(grid[axis] <= most)) continue;
    return fail(TILEC_ERR_SHAPE, "%s: these dims make a grid of %lld blocks along %c, HIP takes up to %lld",
                kernel->info.name, (long long)grid[axis], "xyz"[axis], (long long)most);
  }
  return TILEC_OK;
}

static tilec_status hip_size_grids(const kernel_record* kernel, const variant_record* variant,
                                   const hip_device* device, const tilec_value* params, const int64_t* dims,
                                   int64_t* grids) {
  tilec_status status = eval_grids(kernel, variant, params, dims, grids);
  for (uint32_t i = 0; status == TILEC_OK && i < variant->info.num_launches; i++) {
    const loaded_launch* launch = &hip_code_of(variant)->launches[i];
    int64_t most = (int64_t)launch->blocks_per_unit * device->units;
    if (most > 0) grids[3 * i] = int_min(grids[3 * i], most);
    status = hip_check_grid(kernel, launch->info, grids + 3 * i);
  }
  return status;
}

static tilec_status hip_launch_all(const kernel_record* kernel, const variant_record* variant,
                                   const tilec_exec* exec, const hip_device* device, hip_launches* launches) {
  bool began = false;
  for (uint32_t i = 0; i < variant->info.num_launches; i++) {
    const loaded_launch* launch = &hip_code_of(variant)->launches[i];
    const tilec_launch_info* info = launch->info;
    const int64_t* grid = launches->grids + 3 * i;
    if (grid[0] == 0) continue;
    hipError result = hip.launch(launch->made[device->head.number], (unsigned)grid[0], (unsigned)grid[1],
                                 (unsigned)grid[2], info->block[0], info->block[1], info->block[2],
                                 info->smem_dynamic, (hipStream)exec->stream, launches->pointers, NULL);
    if (UNLIKELY(result != HIP_OK))
      return hip_fail(began ? TILEC_ERR_PARTIAL : TILEC_ERR_DRIVER, kernel->info.name,
                      "hipModuleLaunchKernel", result);
    began = true;
  }
  return TILEC_OK;
}

LOCAL tilec_status hip_run(const kernel_record* kernel, const variant_record* variant, const arch_list* archs,
                           const tilec_exec* exec, const tilec_value* params, const int64_t* dims) {
  const hip_device* device = hip_device_of(archs);
  hip_launches launches;
  int64_t room[MAX_DIMS];
  int before;
  dims = launch_dims(kernel, variant, exec, dims, room);
  tilec_status status = hip_size_grids(kernel, variant, device, params, dims, launches.grids);
  if (LIKELY(status == TILEC_OK)) status = place_workspace(kernel, variant, exec, dims, launches.slices);
  if (LIKELY(status == TILEC_OK)) status = hip_enter(device, &before);
  if (UNLIKELY(status != TILEC_OK)) return status;
  collect_arguments(kernel, variant, params, dims, launches.slices, launches.floats, launches.pointers);
  status = hip_ensure_loaded(kernel, variant, exec, device);
  if (LIKELY(status == TILEC_OK)) status = hip_launch_all(kernel, variant, exec, device, &launches);
  hip_leave(device, before);
  return status;
}
