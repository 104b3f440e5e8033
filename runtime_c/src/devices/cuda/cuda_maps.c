/* Tensor maps, made for every call from its actual pointers, extents and strides. */
#include "devices/cuda/cuda.h"

#include <string.h>

#include "status.h"

/* Rows of a box: of a tile that `rest` rows make, or an equal share of the rows beyond such tiles. */
static uint32_t rows_of_box(const tensor_map* map, uint64_t rows) {
  uint32_t left = map->rest ? (uint32_t)(rows % map->rest) : 0;
  uint32_t boxes = left ? (map->rest + map->box[1] - 1) / map->box[1] : 1;
  return left ? (left + boxes - 1) / boxes : map->box[1];
}

static CUresult encode_boxes(const tensor_map* map, void* address, const uint64_t* extents,
                             const uint64_t* strides, unsigned char* out) {
  static const uint32_t steps[MAX_RANK] = {1, 1, 1, 1, 1};
  uint32_t box[MAX_RANK];
  memcpy(box, map->box, sizeof box);
  box[1] = rows_of_box(map, extents[1]);
  return cuda.encode_tiled(out, (int)map->dtype, map->rank, address, extents, strides, box, steps,
                           CU_MAP_NO_INTERLEAVE, (int)map->swizzle, CU_MAP_PROMOTE_128B, CU_MAP_FILL_ZERO);
}

static CUresult encode_window(const tensor_map* map, void* address, const uint64_t* extents,
                              const uint64_t* strides, unsigned char* out) {
  uint32_t steps[MAX_RANK] = {1, 1, 1, 1, 1};
  memcpy(steps + 1, map->steps, (map->rank - 2) * sizeof steps[0]);
  return cuda.encode_im2col(out, (int)map->dtype, map->rank, address, extents, strides, map->lower,
                            map->upper, map->box[0], map->box[1], steps, CU_MAP_NO_INTERLEAVE,
                            (int)map->swizzle, CU_MAP_PROMOTE_128B, CU_MAP_FILL_ZERO);
}

/* Whether a window has no pixel: the filter is larger than the padded image. */
static bool is_empty(const tensor_map* map, const uint64_t* extents) {
  for (uint32_t axis = 0; map->steps[0] != 0 && axis + 2 < map->rank; axis++)
    if ((int64_t)extents[axis + 1] - 1 + map->upper[axis] < map->lower[axis]) return true;
  return false;
}

/* A tensor without elements, or a window without pixels, has no map: no block reads it. */
static COLD tilec_status encode_new(const kernel_record* kernel, const tensor_map* map, void* address,
                                    const int64_t* sizes, unsigned char* out) {
  uint64_t extents[MAX_RANK], strides[MAX_RANK];
  for (uint32_t axis = 0; axis < map->rank; axis++) {
    if (sizes[axis] <= 0) {
      memset(out, 0, CU_MAP_BYTES);
      return TILEC_OK;
    }
    extents[axis] = (uint64_t)sizes[axis];
  }
  if (is_empty(map, extents)) {
    memset(out, 0, CU_MAP_BYTES);
    return TILEC_OK;
  }
  for (uint32_t axis = 0; axis + 1 < map->rank; axis++) strides[axis] = (uint64_t)sizes[map->rank + axis];
  CUresult result = (map->steps[0] == 0 ? encode_boxes : encode_window)(map, address, extents, strides, out);
  if (LIKELY(result == CUDA_OK)) {
    if (map->steps[0] == 0) keep_map(map, sizes, out);
    return TILEC_OK;
  }
  tilec_status status = result == CUDA_INVALID_VALUE ? TILEC_ERR_LAYOUT : TILEC_ERR_DRIVER;
  bool of_call = map->param < kernel->info.num_params;
  const char* name = of_call ? kernel->params[map->param].info->name : "a tensor of the workspace";
  return cuda_fail(status, name, "describing it for TMA", result);
}

/* Behind the parameters come the slices of the workspace. */
static void* address_of(const kernel_record* kernel, const tensor_map* map, const tilec_value* params,
                        void* const* slices) {
  uint32_t count = kernel->info.num_params;
  return map->param < count ? params[map->param].ptr : slices[map->param - count];
}

static tilec_status encode_map(const kernel_record* kernel, const tensor_map* map, void* address,
                               const int64_t* sizes, unsigned char* out) {
  if (LIKELY(reuse_map(map, address, sizes, out))) return TILEC_OK;
  return encode_new(kernel, map, address, sizes, out);
}

static tilec_status encode_launch(const kernel_record* kernel, const cuda_launch* launch, uint32_t count,
                                  const tilec_value* params, void* const* slices, const int64_t* dims,
                                  unsigned char (*out)[CU_MAP_BYTES]) {
  int64_t values[MAX_TENSOR_MAPS * MAX_MAP_SIZES];
  const int64_t* sizes = values;
  if (!launch->map_sizes(params, dims, values))
    return fail(TILEC_ERR_SHAPE, "%s: the size of a tensor overflows 64 bits", kernel->info.name);
  for (uint32_t i = 0; i < count; i++) {
    const tensor_map* map = &launch->maps[i];
    tilec_status status = encode_map(kernel, map, address_of(kernel, map, params, slices), sizes, out[i]);
    if (UNLIKELY(status != TILEC_OK)) return status;
    sizes += 2 * map->rank - 1;
  }
  return TILEC_OK;
}

LOCAL tilec_status encode_maps(const kernel_record* kernel, const variant_record* variant,
                               const tilec_value* params, void* const* slices, const int64_t* dims,
                               cuda_maps* out) {
  uint32_t done = 0;
  for (uint32_t i = 0; i < variant->info.num_launches; i++) {
    uint32_t count = variant->info.launches[i]->num_tensor_maps;
    if (count == 0) continue;
    tilec_status status =
        encode_launch(kernel, &code_of(variant)->launches[i], count, params, slices, dims, out->bytes + done);
    if (UNLIKELY(status != TILEC_OK)) return status;
    done += count;
  }
  return TILEC_OK;
}
