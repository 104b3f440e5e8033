/* One call: everything is sized, made and checked, then its launches are encoded where the caller wants them.
 */
#include "devices/metal/metal.h"

#include <string.h>

#include "arguments/device_args.h"
#include "arith.h"
#include "devices/loaded.h"
#include "launch/slices.h"

enum { MAX_METAL_NUMBERS = MAX_PARAMS + MAX_DIMS };

typedef struct metal_launches {
  int64_t grids[3 * MAX_LAUNCHES];
  void* slices[MAX_SLICES];
  int64_t numbers[MAX_METAL_NUMBERS]; /* scalars and dims, 8 bytes each */
  uint32_t num_numbers;
} metal_launches;

/* ---- arguments ---- */

/* A float in the low bytes, as kernels read it. */
static int64_t metal_number(const tilec_param* info, const tilec_value* value) {
  float narrow = (float)value->f;
  uint32_t bits;
  if (info->tag != TILEC_ARG_FLOAT) return value->i;
  memcpy(&bits, &narrow, sizeof(bits));
  return bits;
}

static void metal_collect(const kernel_record* kernel, const variant_record* variant,
                          const tilec_value* params, const int64_t* dims, metal_launches* launches) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < kernel->info.num_params; i++) {
    const tilec_param* info = kernel->params[i].info;
    if (info->tag != TILEC_ARG_TENSOR) launches->numbers[count++] = metal_number(info, &params[i]);
  }
  uint32_t num_dims = kernel->info.num_dims + variant->takes_num_sms;
  for (uint32_t i = 0; i < num_dims; i++) launches->numbers[count++] = dims[i];
  launches->num_numbers = count;
}

static void metal_set_buffer(metal_id encoder, metal_id buffer, uint64_t offset, unsigned long place) {
  METAL_TELL(void, metal_id, unsigned long, unsigned long)(encoder, metal.selectors.set_buffer, buffer,
                                                           (unsigned long)offset, place);
}

/* In the order of tilec/codegen/image.py: tensors, slices of the workspace, then all numbers in one buffer.
 */
static void metal_set_arguments(const kernel_record* kernel, const variant_record* variant,
                                const tilec_exec* exec, const tilec_value* params,
                                const metal_launches* launches, metal_id encoder) {
  unsigned long place = 0;
  for (uint64_t left = kernel->tensors; left; left &= left - 1) {
    const DLTensor* tensor = params[__builtin_ctzll(left)].ptr;
    metal_set_buffer(encoder, tensor ? tensor->data : NULL, tensor ? tensor->byte_offset : 0, place++);
  }
  for (uint32_t i = 0; i < variant->num_slices; i++)
    metal_set_buffer(encoder, exec->workspace, (uintptr_t)launches->slices[i], place++);
  METAL_TELL(void, const void*, unsigned long, unsigned long)(
      encoder, metal.selectors.set_bytes, launches->numbers, launches->num_numbers * sizeof(int64_t), place);
}

static void metal_size_grids(const variant_record* variant, int64_t* grids) {
  const loaded_code* code = variant->code;
  for (uint32_t i = 0; i < variant->info.num_launches; i++) {
    int64_t most = (int64_t)code->launches[i].blocks_per_unit * METAL_CORES;
    if (most > 0) grids[3 * i] = int_min(grids[3 * i], most);
  }
}

/* ---- encoding ---- */

static metal_size metal_size_of(unsigned long x, unsigned long y, unsigned long z) {
  return (metal_size){x, y, z};
}

static void metal_encode(const kernel_record* kernel, const variant_record* variant, const tilec_exec* exec,
                         const tilec_value* params, const metal_launches* launches, metal_id encoder) {
  const loaded_code* code = variant->code;
  metal_set_arguments(kernel, variant, exec, params, launches, encoder);
  for (uint32_t i = 0; i < variant->info.num_launches; i++) {
    const loaded_launch* launch = &code->launches[i];
    const uint32_t* block = launch->info->block;
    const int64_t* grid = launches->grids + 3 * i;
    if (grid[0] == 0) continue;
    METAL_TELL(void, metal_id)(encoder, metal.selectors.set_pipeline, launch->made[0]);
    METAL_TELL(void, metal_size, metal_size)(
        encoder, metal.selectors.run_blocks,
        metal_size_of((unsigned long)grid[0], (unsigned long)grid[1], (unsigned long)grid[2]),
        metal_size_of(block[0], block[1], block[2]));
  }
}

static bool metal_takes(metal_id object, metal_selector message) {
  return METAL_TELL(signed char, metal_selector)(object, metal.selectors.responds, message) != 0;
}

/* Waits: nobody else knows the queue. */
static tilec_status metal_finish(const kernel_record* kernel, metal_id buffer) {
  METAL_ASK(void)(buffer, metal.selectors.wait);
  if (METAL_ASK(unsigned long)(buffer, metal.selectors.status) != METAL_STATUS_ERROR) return TILEC_OK;
  return metal_fail(TILEC_ERR_DRIVER, kernel->info.name, "running on the GPU",
                    METAL_ASK(metal_id)(buffer, metal.selectors.error));
}

/* exec->stream is an encoder, a command buffer or a queue; NULL = the runtime's own queue, and waiting. */
static tilec_status metal_submit(const kernel_record* kernel, const variant_record* variant,
                                 const metal_device* device, const tilec_exec* exec,
                                 const tilec_value* params, const metal_launches* launches) {
  metal_id given = exec->stream ? exec->stream : device->queue;
  if (metal_takes(given, metal.selectors.set_pipeline)) {
    metal_encode(kernel, variant, exec, params, launches, given);
    return TILEC_OK;
  }
  bool is_buffer = metal_takes(given, metal.selectors.encoder);
  metal_id buffer = is_buffer ? given : METAL_ASK(metal_id)(given, metal.selectors.buffer);
  metal_id encoder = buffer ? METAL_ASK(metal_id)(buffer, metal.selectors.encoder) : NULL;
  if (!encoder) return metal_fail(TILEC_ERR_DRIVER, kernel->info.name, "making an encoder", NULL);
  metal_encode(kernel, variant, exec, params, launches, encoder);
  METAL_ASK(void)(encoder, metal.selectors.end);
  if (!is_buffer) METAL_ASK(void)(buffer, metal.selectors.commit);
  return exec->stream ? TILEC_OK : metal_finish(kernel, buffer);
}

LOCAL tilec_status metal_run(const kernel_record* kernel, const variant_record* variant,
                             const arch_list* archs, const tilec_exec* exec, const tilec_value* params,
                             const int64_t* dims) {
  const metal_device* device = metal_device_of(archs);
  metal_launches launches;
  int64_t room[MAX_DIMS];
  dims = launch_dims(kernel, variant, exec, dims, room);
  tilec_status status = eval_grids(kernel, variant, params, dims, launches.grids);
  if (LIKELY(status == TILEC_OK)) status = place_workspace(kernel, variant, exec, dims, launches.slices);
  if (LIKELY(status == TILEC_OK)) status = metal_load(kernel, variant, device);
  if (UNLIKELY(status != TILEC_OK)) return status;
  metal_size_grids(variant, launches.grids);
  metal_collect(kernel, variant, params, dims, &launches);
  void* pool = metal.pool_push();
  status = metal_submit(kernel, variant, device, exec, params, &launches);
  metal.pool_pop(pool);
  return status;
}
