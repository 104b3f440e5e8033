/* One call on a CUDA device: everything is sized, loaded and checked before the first launch. */
#include "cuda.h"

enum { MAX_CUDA_ARGS = MAX_PARAMS + MAX_SLICES + MAX_DIMS + MAX_TENSOR_MAPS };

/* The arguments of all launches of a call: cuLaunchKernelEx takes a pointer to each. Behind the `shared` ones
 * come the tensor maps of one launch. */
typedef struct cuda_arguments {
  void* pointers[MAX_CUDA_ARGS];
  uint32_t shared;
  void* slices[MAX_SLICES];
  float floats[MAX_PARAMS]; /* parameters that travel as float */
} cuda_arguments;

typedef struct cuda_launches {
  int64_t grids[3 * MAX_LAUNCHES];
  cuda_arguments arguments;
  cuda_maps maps;
} cuda_launches;

/* ---- preparation ---- */

/* Integers are little endian, so that the low bytes of a wide one are the narrow one. */
static void* scalar_argument(const tilec_param* info, const tilec_value* value, float* narrow) {
  if (info->tag != TILEC_ARG_FLOAT) return (void*)&value->i;
  if (info->dtype.bits == 64) return (void*)&value->f;
  *narrow = (float)value->f;
  return narrow;
}

/* Tensors, workspace slices, scalars, dims. */
static void collect_arguments(const kernel_record* kernel, const variant_record* variant,
                              const tilec_value* params, const int64_t* dims, cuda_arguments* arguments) {
  void** next = arguments->pointers;
  uint64_t all = kernel->info.num_params == 64 ? UINT64_MAX : (UINT64_C(1) << kernel->info.num_params) - 1;
  for (uint64_t left = kernel->tensors; left; left &= left - 1)
    *next++ = (void*)&params[__builtin_ctzll(left)].ptr;
  for (uint32_t i = 0; i < variant->num_slices; i++) *next++ = &arguments->slices[i];
  for (uint64_t left = all & ~kernel->tensors; left; left &= left - 1) {
    int i = __builtin_ctzll(left);
    *next++ = scalar_argument(kernel->params[i].info, &params[i], &arguments->floats[i]);
  }
  for (uint32_t i = 0; i < kernel->info.num_dims; i++) *next++ = (void*)&dims[i];
  arguments->shared = (uint32_t)(next - arguments->pointers);
}

/* Lanes move up to 16 bytes at once. */
static tilec_status check_alignment(const kernel_record* kernel, const tilec_value* params) {
  if (LIKELY(tensors_aligned(kernel, params, CUDA_VECTOR))) return TILEC_OK;
  for (uint32_t i = 0; i < kernel->info.num_params; i++) {
    const tilec_param* info = kernel->params[i].info;
    if (info->tag != TILEC_ARG_TENSOR || LIKELY((uintptr_t)params[i].ptr % CUDA_VECTOR == 0)) continue;
    return fail(TILEC_ERR_LAYOUT, "%s: %s is at %p; on CUDA tensors start at multiples of %d bytes",
                kernel->info.name, info->name, params[i].ptr, CUDA_VECTOR);
  }
  return TILEC_OK;
}

/* A persistent kernel starts as many blocks as the device holds, in whole clusters. */
static void limit_blocks(const cuda_launch* launch, const tilec_launch_info* info, const cuda_device* device,
                         int64_t* grid) {
  if (launch->blocks_per_sm == 0) return;
  int64_t most = (int64_t)launch->blocks_per_sm * device->multiprocessors;
  grid[0] = int_min(grid[0], int_max(most / info->cluster[0], 1) * info->cluster[0]);
}

static tilec_status check_grid(const kernel_record* kernel, const int64_t* grid) {
  static const int64_t limits[] = {INT32_MAX, 65535, 65535};
  for (int axis = 0; axis < 3; axis++) {
    if (LIKELY(grid[axis] <= limits[axis])) continue;
    return fail(TILEC_ERR_SHAPE, "%s: these dims make a grid of %lld blocks along %c, CUDA takes up to %lld",
                kernel->info.name, (long long)grid[axis], "xyz"[axis], (long long)limits[axis]);
  }
  return TILEC_OK;
}

static tilec_status size_grids(const kernel_record* kernel, const variant_record* variant,
                               const cuda_device* device, const tilec_value* params, const int64_t* dims,
                               int64_t* grids) {
  tilec_status status = eval_grids(kernel, variant, params, dims, grids);
  for (uint32_t i = 0; status == TILEC_OK && i < variant->info.num_launches; i++) {
    limit_blocks(&variant->cuda->launches[i], variant->info.launches[i], device, grids + 3 * i);
    status = check_grid(kernel, grids + 3 * i);
  }
  return status;
}

static tilec_status place_workspace(const kernel_record* kernel, const variant_record* variant,
                                    const tilec_exec* exec, const int64_t* dims, void** slices) {
  workspace_layout layout;
  if (LIKELY(variant->num_slices == 0)) return TILEC_OK;
  tilec_status status = measure(kernel, variant, exec, dims, &layout);
  return status == TILEC_OK ? place_slices(kernel, variant, exec, &layout, slices) : status;
}

static tilec_status prepare_launches(const kernel_record* kernel, const variant_record* variant,
                                     const tilec_exec* exec, const cuda_device* device,
                                     const tilec_value* params, const int64_t* dims, cuda_launches* out) {
  tilec_status status = check_alignment(kernel, params);
  if (UNLIKELY(status != TILEC_OK)) return status;
  status = size_grids(kernel, variant, device, params, dims, out->grids);
  if (UNLIKELY(status != TILEC_OK)) return status;
  status = place_workspace(kernel, variant, exec, dims, out->arguments.slices);
  if (UNLIKELY(status != TILEC_OK)) return status;
  collect_arguments(kernel, variant, params, dims, &out->arguments);
  return encode_maps(kernel, variant, params, dims, &out->maps);
}

/* Loading during capture could fail or be captured, so that it is refused. The legacy stream cannot be asked
 * while another one captures: that answer means capturing too. */
static tilec_status ensure_loaded(const kernel_record* kernel, const variant_record* variant,
                                  const tilec_exec* exec, const cuda_device* device) {
  int capturing = CU_CAPTURE_NONE;
  if (LIKELY(cuda_ready(variant, device))) return TILEC_OK;
  CUresult result = cuda.stream_is_capturing((CUstream)exec->stream, &capturing);
  if (capturing != CU_CAPTURE_NONE || result == CUDA_CAPTURE_IMPLICIT) {
    return fail(TILEC_ERR_NOT_PRELOADED,
                "%s: variant %u is not loaded and the stream is capturing; preload() first",
                kernel->info.name, variant->info.id);
  }
  if (result != CUDA_OK) return cuda_fail(TILEC_ERR_DEVICE, kernel->info.name, "asking the stream", result);
  return cuda_load(kernel, variant, device);
}

/* ---- launching ---- */

static unsigned set_attributes(const cuda_launch* launch, const tilec_launch_info* info,
                               CUlaunchAttribute* out) {
  unsigned count = 0;
  if (info->cluster[0] * info->cluster[1] * info->cluster[2] > 1) {
    CUlaunchAttribute* cluster = &out[count++];
    cluster->id = CU_LAUNCH_CLUSTER_DIMENSION;
    cluster->value.cluster.x = info->cluster[0];
    cluster->value.cluster.y = info->cluster[1];
    cluster->value.cluster.z = info->cluster[2];
  }
  if (launch->programmatic) {
    CUlaunchAttribute* programmatic = &out[count++];
    programmatic->id = CU_LAUNCH_PROGRAMMATIC;
    programmatic->value.programmatic = 1;
  }
  return count;
}

static CUresult launch_one(const cuda_launch* launch, const tilec_launch_info* info, const int64_t* grid,
                           CUstream stream, void** arguments) {
  CUlaunchAttribute attributes[MAX_LAUNCH_ATTRIBUTES];
  CUlaunchConfig config = {
      .grid = {(unsigned)grid[0], (unsigned)grid[1], (unsigned)grid[2]},
      .block = {info->block[0], info->block[1], info->block[2]},
      .shared_bytes = info->smem_dynamic,
      .stream = stream,
      .attributes = attributes,
      .num_attributes = set_attributes(launch, info, attributes),
  };
  return cuda.launch(&config, (CUfunction)*launch->kernel, arguments, NULL);
}

static tilec_status fail_launch(const kernel_record* kernel, bool began, CUresult result) {
  bool foreign =
      result == CUDA_INVALID_CONTEXT || result == CUDA_INVALID_HANDLE; /* another device's stream */
  tilec_status status = began ? TILEC_ERR_PARTIAL : foreign ? TILEC_ERR_DEVICE : TILEC_ERR_DRIVER;
  return cuda_fail(status, kernel->info.name, "cuLaunchKernelEx", result);
}

static tilec_status launch_all(const kernel_record* kernel, const variant_record* variant,
                               const tilec_exec* exec, cuda_launches* launches) {
  bool began = false;
  cuda_arguments* arguments = &launches->arguments;
  uint32_t map = 0;
  for (uint32_t i = 0; i < variant->info.num_launches; i++) {
    const tilec_launch_info* info = variant->info.launches[i];
    const int64_t* grid = launches->grids + 3 * i;
    for (uint32_t m = 0; m < info->num_tensor_maps; m++)
      arguments->pointers[arguments->shared + m] = launches->maps.bytes[map++];
    if (grid[0] == 0) continue;
    CUresult result =
        launch_one(&variant->cuda->launches[i], info, grid, (CUstream)exec->stream, arguments->pointers);
    if (UNLIKELY(result != CUDA_OK)) return fail_launch(kernel, began, result);
    began = true;
  }
  return TILEC_OK;
}

LOCAL tilec_status cuda_run(const kernel_record* kernel, const variant_record* variant,
                            const arch_list* archs, const tilec_exec* exec, const tilec_value* params,
                            const int64_t* dims) {
  cuda_device* device = cuda_device_of(archs);
  cuda_launches launches;
  bool pushed;
  tilec_status status = prepare_launches(kernel, variant, exec, device, params, dims, &launches);
  if (UNLIKELY(status != TILEC_OK)) return status;
  status = cuda_enter(device, &pushed);
  if (UNLIKELY(status != TILEC_OK)) return status;
  status = cuda_check_stream(device, (CUstream)exec->stream);
  if (LIKELY(status == TILEC_OK)) status = ensure_loaded(kernel, variant, exec, device);
  if (UNLIKELY(log_enabled()))
    log_line(TILEC_LOG_DEBUG, "%s: variant %u (%s), device %d", kernel->info.name, variant->info.id,
             variant->info.arch, device->number);
  if (LIKELY(status == TILEC_OK)) status = launch_all(kernel, variant, exec, &launches);
  cuda_leave(pushed);
  return status;
}
