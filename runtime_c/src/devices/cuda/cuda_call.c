/* One call on a CUDA device: everything is sized, loaded and checked before the first launch. */
#include "devices/cuda/cuda.h"

#include "arguments/device_args.h"
#include "arith.h"
#include "launch/slices.h"
#include "status.h"

enum { MAX_CUDA_ARGS = MAX_PARAMS + MAX_SLICES + MAX_DIMS + MAX_TENSOR_MAPS };

/* What a block loads so soon that others are not in its way: about a ring. And where hardly a multiprocessor
 * is idle. */
enum { FEW_BYTES = 256 << 10, FEW_OF_ALL = 1 << 20 };

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
  bool early[MAX_LAUNCHES];
  cuda_arguments arguments;
  cuda_maps maps;
} cuda_launches;

/* ---- preparation ---- */

/* A persistent kernel starts as many blocks as the device holds, in whole clusters. */
static void limit_blocks(const cuda_launch* launch, const cuda_device* device, int64_t* grid) {
  if (launch->blocks_per_sm == 0) return;
  uint32_t most = launch->blocks_per_sm * (uint32_t)device->multiprocessors;
  uint32_t cluster = launch->info->cluster[0];
  if (cluster > 1) most = most < cluster ? cluster : most / cluster * cluster;
  grid[0] = int_min(grid[0], most);
}

static COLD tilec_status check_each_extent(const kernel_record* kernel, const int64_t* grid) {
  static const int64_t limits[] = {INT32_MAX, 65535, 65535};
  for (int axis = 0; axis < 3; axis++) {
    if (grid[axis] <= limits[axis]) continue;
    return fail(TILEC_ERR_SHAPE, "%s: these dims make a grid of %lld blocks along %c, CUDA takes up to %lld",
                kernel->info.name, (long long)grid[axis], "xyz"[axis], (long long)limits[axis]);
  }
  return TILEC_OK;
}

static tilec_status check_grid(const kernel_record* kernel, const int64_t* grid) {
  if (LIKELY(grid[0] <= INT32_MAX && (grid[1] | grid[2]) <= 65535)) return TILEC_OK;
  return check_each_extent(kernel, grid);
}

/* Blocks that have a multiprocessor each and begin early take those that the launch in front leaves idle.
 * Which are idle then is left to chance, and where most of one part of the device are busy, these share its
 * way to L2: on an H200 products of 110 of 132 blocks take up to 14 % longer. To begin early saves some 0.4
 * us, which is more where blocks are few, or have little to do. */
static bool starts_early(const cuda_launch* launch, const cuda_device* device, const tilec_value* params,
                         const int64_t* dims, const int64_t* grid) {
  int64_t loaded, units = device->multiprocessors, blocks = grid[0];
  if (!launch->programmatic || launch->loaded == NULL) return launch->programmatic;
  if (blocks <= units / 2) return true;
  int64_t waves = (blocks - 1) / units + 1, idle = waves * units - blocks;
  int64_t few = idle <= waves * units / 16 ? FEW_OF_ALL : FEW_BYTES;
  return launch->loaded(params, dims, &loaded) && loaded <= few / waves;
}

static tilec_status size_grids(const kernel_record* kernel, const variant_record* variant,
                               const cuda_device* device, const tilec_value* params, const int64_t* dims,
                               cuda_launches* out) {
  tilec_status status = eval_grids(kernel, variant, params, dims, out->grids);
  for (uint32_t i = 0; status == TILEC_OK && i < variant->info.num_launches; i++) {
    const cuda_launch* launch = &code_of(variant)->launches[i];
    int64_t* grid = out->grids + 3 * i;
    out->early[i] = starts_early(launch, device, params, dims, grid);
    limit_blocks(launch, device, grid);
    status = check_grid(kernel, grid);
  }
  return status;
}

static tilec_status prepare_launches(const kernel_record* kernel, const variant_record* variant,
                                     const tilec_exec* exec, const cuda_device* device,
                                     const tilec_value* params, const int64_t* dims, cuda_launches* out) {
  tilec_status status = size_grids(kernel, variant, device, params, dims, out);
  if (UNLIKELY(status != TILEC_OK)) return status;
  status = place_workspace(kernel, variant, exec, dims, out->arguments.slices);
  if (UNLIKELY(status != TILEC_OK)) return status;
  cuda_arguments* arguments = &out->arguments;
  arguments->shared = collect_arguments(kernel, variant, params, dims, arguments->slices, arguments->floats,
                                        arguments->pointers);
  return encode_maps(kernel, variant, params, out->arguments.slices, dims, &out->maps);
}

/* Loading during capture could fail or be captured, so that it is refused. The legacy stream cannot be asked
 * while another one captures: that answer means capturing too. */
static tilec_status ensure_loaded(const kernel_record* kernel, const variant_record* variant,
                                  const tilec_exec* exec, cuda_device* device) {
  int capturing = CU_CAPTURE_NONE;
  if (cuda_ready(variant, device)) {
    if (!cuda_direct(variant, device)) cuda_find_functions(variant, device);
    return TILEC_OK;
  }
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

static unsigned set_attributes(const cuda_launch* launch, bool early, CUlaunchAttribute* out) {
  const tilec_launch_info* info = launch->info;
  unsigned count = 0;
  if (info->cluster[0] * info->cluster[1] * info->cluster[2] > 1) {
    CUlaunchAttribute* cluster = &out[count++];
    cluster->id = CU_LAUNCH_CLUSTER_DIMENSION;
    cluster->value.cluster.x = info->cluster[0];
    cluster->value.cluster.y = info->cluster[1];
    cluster->value.cluster.z = info->cluster[2];
  }
  if (early) {
    CUlaunchAttribute* programmatic = &out[count++];
    programmatic->id = CU_LAUNCH_PROGRAMMATIC;
    programmatic->value.programmatic = 1;
  }
  if (launch->cooperative) {
    CUlaunchAttribute* cooperative = &out[count++];
    cooperative->id = CU_LAUNCH_COOPERATIVE;
    cooperative->value.cooperative = 1;
  }
  return count;
}

static CUresult launch_one(const cuda_launch* launch, void* function, const int64_t* grid, bool early,
                           CUstream stream, void** arguments) {
  const tilec_launch_info* info = launch->info;
  CUlaunchAttribute attributes[MAX_LAUNCH_ATTRIBUTES];
  CUlaunchConfig config = {
      .grid = {(unsigned)grid[0], (unsigned)grid[1], (unsigned)grid[2]},
      .block = {info->block[0], info->block[1], info->block[2]},
      .shared_bytes = info->smem_dynamic,
      .stream = stream,
      .attributes = attributes,
      .num_attributes = set_attributes(launch, early, attributes),
  };
  return cuda.launch(&config, (CUfunction)function, arguments, NULL);
}

/* What the driver answered to the last launch, and whether one before it began. */
typedef struct launch_result {
  CUresult result;
  bool began;
} launch_result;

/* The functions of `direct`'s primary context; kernels, in whichever context is current, where it is NULL. */
static launch_result launch_all(const variant_record* variant, const tilec_exec* exec,
                                const cuda_device* direct, cuda_launches* launches) {
  launch_result done = {CUDA_OK, false};
  cuda_arguments* arguments = &launches->arguments;
  uint32_t map = 0;
  for (uint32_t i = 0; i < variant->info.num_launches; i++) {
    const cuda_launch* launch = &code_of(variant)->launches[i];
    const int64_t* grid = launches->grids + 3 * i;
    void* function = direct ? launch->functions[direct->head.number] : launch->kernel;
    for (uint32_t m = 0; m < launch->info->num_tensor_maps; m++)
      arguments->pointers[arguments->shared + m] = launches->maps.bytes[map++];
    if (grid[0] == 0) continue;
    done.result =
        launch_one(launch, function, grid, launches->early[i], (CUstream)exec->stream, arguments->pointers);
    if (UNLIKELY(done.result != CUDA_OK)) return done;
    done.began = true;
  }
  return done;
}

static COLD tilec_status report_launch(const kernel_record* kernel, launch_result done) {
  if (done.result == CUDA_OK) return TILEC_OK;
  bool foreign =
      done.result == CUDA_INVALID_CONTEXT || done.result == CUDA_INVALID_HANDLE; /* another device's stream */
  tilec_status status = done.began ? TILEC_ERR_PARTIAL : foreign ? TILEC_ERR_DEVICE : TILEC_ERR_DRIVER;
  return cuda_fail(status, kernel->info.name, "cuLaunchKernelEx", done.result);
}

/* The context of the stream, or the current one, is not the one of the functions; or it is none any more. */
static bool is_elsewhere(launch_result done) {
  if (done.began) return false;
  return done.result == CUDA_INVALID_HANDLE || done.result == CUDA_INVALID_CONTEXT ||
         done.result == CUDA_CONTEXT_IS_DESTROYED;
}

static COLD tilec_status launch_in_context(const kernel_record* kernel, const variant_record* variant,
                                           const tilec_exec* exec, cuda_device* device,
                                           cuda_launches* launches) {
  bool pushed;
  tilec_status status = cuda_enter(device, &pushed);
  if (status != TILEC_OK) return status;
  status = cuda_check_stream(device, (CUstream)exec->stream);
  if (status == TILEC_OK) status = ensure_loaded(kernel, variant, exec, device);
  if (status == TILEC_OK) status = report_launch(kernel, launch_all(variant, exec, NULL, launches));
  cuda_leave(pushed);
  return status;
}

/* The driver encodes tensor maps in a context; a thread may have none. */
static COLD tilec_status prepare_in_context(const kernel_record* kernel, const variant_record* variant,
                                            const tilec_exec* exec, cuda_device* device,
                                            const tilec_value* params, const int64_t* dims,
                                            cuda_launches* launches) {
  bool pushed;
  tilec_status status = cuda_enter(device, &pushed);
  if (status != TILEC_OK) return status;
  status = prepare_launches(kernel, variant, exec, device, params, dims, launches);
  cuda_leave(pushed);
  return status;
}

LOCAL tilec_status cuda_run(const kernel_record* kernel, const variant_record* variant,
                            const arch_list* archs, const tilec_exec* exec, const tilec_value* params,
                            const int64_t* dims) {
  cuda_device* device = cuda_device_of(archs);
  cuda_launches launches;
  int64_t room[MAX_DIMS];
  dims = launch_dims(kernel, variant, exec, dims, room);
  tilec_status status = prepare_launches(kernel, variant, exec, device, params, dims, &launches);
  if (UNLIKELY(status == TILEC_ERR_DRIVER))
    status = prepare_in_context(kernel, variant, exec, device, params, dims, &launches);
  if (UNLIKELY(status != TILEC_OK)) return status;
  if (UNLIKELY(log_enabled()))
    log_line(TILEC_LOG_DEBUG, "%s: variant %u (%s), device %d", kernel->info.name, variant->info.id,
             variant->info.arch, device->head.number);
  if (LIKELY(cuda_direct(variant, device))) {
    launch_result done = launch_all(variant, exec, device, &launches);
    if (LIKELY(done.result == CUDA_OK)) return TILEC_OK;
    if (!is_elsewhere(done)) return report_launch(kernel, done);
  }
  return launch_in_context(kernel, variant, exec, device, &launches);
}
