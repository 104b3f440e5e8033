/* What a call needs beside its arguments, on any device: the extents of its grids and its workspace. */
#include "launch/slices.h"

#include <string.h>

#include "arith.h"
#include "devices/family.h"
#include "launch/exec.h"
#include "launch/workspace.h"
#include "status.h"

/* Code relies on at least 1 and at most MAX_WORKERS. */
static int64_t count_sms(const tilec_exec* exec) {
  return int_max(1, int_min(family_of(exec->device)->units(exec), MAX_WORKERS));
}

LOCAL const int64_t* launch_dims(const kernel_record* kernel, const variant_record* variant,
                                 const tilec_exec* exec, const int64_t* dims, int64_t* room) {
  uint32_t count = kernel->info.num_dims;
  if (LIKELY(!variant->takes_num_sms)) return dims;
  if (count > 0) memcpy(room, dims, count * sizeof *room);
  room[count] = count_sms(exec);
  return room;
}

/* Kernels count blocks in 32 bits, and a persistent one a step past the last: MOST_BLOCKS leaves it room. */
static COLD tilec_status too_many_blocks(const kernel_record* kernel, const int64_t* grid) {
  int axis = grid[0] > MOST_BLOCKS ? 0 : grid[1] > MOST_BLOCKS ? 1 : 2;
  return fail(TILEC_ERR_SHAPE, "%s: these dims make a grid of %lld blocks along %c, kernels count up to %d",
              kernel->info.name, (long long)grid[axis], "xyz"[axis], MOST_BLOCKS);
}

static bool fits(const variant_record* variant, const tilec_value* params, const int64_t* dims) {
  int64_t holds;
  return variant->fits(params, dims, &holds) && holds;
}

/* Three extents per launch; an empty grid is three zeros. Products of extents do not overflow. */
LOCAL tilec_status eval_grids(const kernel_record* kernel, const variant_record* variant,
                              const tilec_value* params, const int64_t* dims, int64_t* grids) {
  bool ok = variant->grids(params, dims, grids);
  if (UNLIKELY(variant->fits != NULL && !fits(variant, params, dims)))
    return fail(TILEC_ERR_SHAPE, "%s: these dims are too large for 32-bit indices: %s does not hold",
                kernel->info.name, variant->needs);
  for (uint32_t i = 0; ok && i < variant->info.num_launches; i++) {
    int64_t* grid = grids + 3 * i;
    if (grid[0] <= 0 || grid[1] <= 0 || grid[2] <= 0) grid[0] = grid[1] = grid[2] = 0;
    if (UNLIKELY(ok && (grid[0] > MOST_BLOCKS || grid[1] > MOST_BLOCKS || grid[2] > MOST_BLOCKS)))
      return too_many_blocks(kernel, grid);
    int_mul(&ok, int_mul(&ok, grid[0], grid[1]), grid[2]);
  }
  if (LIKELY(ok)) return TILEC_OK;
  return fail(TILEC_ERR_SHAPE, "%s: a grid overflows 64 bits or divides by zero for these dims",
              kernel->info.name);
}

static bool layout_slices(const variant_record* variant, const int64_t* dims, uint64_t align,
                          workspace_layout* layout) {
  int64_t bytes[MAX_SLICES];
  layout->slices = 0;
  if (variant->num_slices == 0) return true;
  if (!variant->slice_bytes(NULL, dims, bytes)) return false;
  for (uint32_t i = 0; i < variant->num_slices; i++) {
    uint64_t rounded;
    layout->offsets[i] = layout->slices;
    if (bytes[i] < 0 || !round_up((uint64_t)bytes[i], align, &rounded)) return false;
    if (__builtin_add_overflow(layout->slices, rounded, &layout->slices)) return false;
  }
  return true;
}

/* Slices first, then the workers' scratch where the threads are the caller's. */
static bool add_scratch(const variant_record* variant, const tilec_exec* exec, workspace_layout* layout) {
  uint64_t scratch = 0;
  if (uses_callers_threads(exec) &&
      __builtin_mul_overflow(scratch_pitch(variant->scratch_bytes), (uint64_t)exec->num_workers, &scratch))
    return false;
  return !__builtin_add_overflow(layout->slices, scratch, &layout->total) && layout->total <= SIZE_MAX / 2;
}

LOCAL tilec_status measure(const kernel_record* kernel, const variant_record* variant, const tilec_exec* exec,
                           const int64_t* dims, workspace_layout* layout) {
  bool ok = layout_slices(variant, dims, family_of(exec->device)->memory_align, layout);
  if (LIKELY(ok && add_scratch(variant, exec, layout))) return TILEC_OK;
  return fail(TILEC_ERR_WORKSPACE, "%s: the workspace size overflows for these dims", kernel->info.name);
}

static tilec_status check_workspace(const kernel_record* kernel, const tilec_exec* exec, uint64_t needed) {
  if (LIKELY(needed == 0)) return TILEC_OK;
  unsigned long long bytes = needed;
  if (!exec->workspace)
    return fail(TILEC_ERR_WORKSPACE, "%s needs a workspace of %llu bytes in exec->workspace",
                kernel->info.name, bytes);
  if (exec->workspace_size < needed) {
    return fail(TILEC_ERR_WORKSPACE, "%s needs a workspace of %llu bytes, got %zu", kernel->info.name, bytes,
                exec->workspace_size);
  }
  const device_family* family = family_of(exec->device);
  uint64_t align = family->memory_align;
  if (!family->handles && (uintptr_t)exec->workspace % align) {
    return fail(TILEC_ERR_WORKSPACE, "%s: the workspace at %p is not aligned to %d bytes", kernel->info.name,
                exec->workspace, (int)align);
  }
  return TILEC_OK;
}

LOCAL tilec_status place_slices(const kernel_record* kernel, const variant_record* variant,
                                const tilec_exec* exec, const workspace_layout* layout, void** slices) {
  tilec_status status = check_workspace(kernel, exec, layout->total);
  if (UNLIKELY(status != TILEC_OK)) return status;
  bool handles = family_of(exec->device)->handles;
  uintptr_t start = handles ? 0 : (uintptr_t)exec->workspace; /* NULL where all slices are empty */
  for (uint32_t i = 0; i < variant->num_slices; i++) slices[i] = (void*)(start + layout->offsets[i]);
  return TILEC_OK;
}
