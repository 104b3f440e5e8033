/* What the CUDA code of a library is made of: the generated tables are arrays of these records. */
#ifndef TILEC_CUDA_RECORDS_H_
#define TILEC_CUDA_RECORDS_H_
#include <stdint.h>
#include <tilec/tilec.h>

#include "records.h"

/* arch_record.facts: 10 * major + minor; the oldest driver for all images; whether the code runs on that
 * capability alone; whether the driver compiles it. */
enum cuda_fact { CUDA_CAPABILITY, CUDA_MIN_DRIVER, CUDA_EXACT, CUDA_PTX };

/* One CUDA image: `data` is a cubin, or PTX that ends with a NUL; `library` is where its CUlibrary lies. */
typedef struct cuda_image {
  const void* data;
  void** library;
} cuda_image;

/* One tensor map, as cuTensorMapEncodeTiled takes it; axes innermost first. With steps[0] above 0 it is one
 * of cuTensorMapEncodeIm2col: the box is channels by pixels, the others are per axis between channels and
 * batch. `rest` is 0, or the extent along axis 1 of tiles of one box or more: boxes have equal shares of
 * what the tensor has beyond such tiles, if anything. */
typedef struct tensor_map {
  uint32_t param, dtype, rank, swizzle;
  uint32_t box[5], rest;
  uint32_t steps[3];
  int32_t lower[3], upper[3];
} tensor_map;

/* One CUDA launch, beside what tilec_launch_info says. Not constant: `kernel` is its CUkernel, once loaded,
 * and `functions` are, by device, the CUfunctions of that in the primary contexts. */
typedef struct cuda_launch {
  void** functions;
  void* kernel;
  const tilec_launch_info* info;
  uint32_t blocks_per_sm; /* at most so many blocks along x for each multiprocessor; 0 = all there are */
  uint32_t programmatic;  /* may begin before the launch in front of it has ended: its code waits itself */
  uint32_t cooperative;   /* its blocks wait for each other: the device holds all at once, or refuses */
  const tensor_map* maps; /* info.num_tensor_maps of them */
  texts_fn map_sizes;     /* per map its extents, then all strides in bytes but the innermost; NULL without */
  texts_fn loaded;        /* bytes, for a tile, by a block that has a multiprocessor; NULL: not known */
  const char* symbol;
} cuda_launch;

enum { MAX_CUDA_DEVICES = 64 }; /* bits of cuda_code.ready */

/* The code of a CUDA variant. Bit d of `ready` is set once its kernels are loaded for device d, of `direct`
 * once the functions of that device are known. */
typedef struct cuda_code {
  _Atomic uint64_t direct, ready;
  cuda_launch* launches;
  const cuda_image* image;
} cuda_code;

#endif
