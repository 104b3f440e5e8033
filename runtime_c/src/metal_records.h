/* What the Metal code of a library is made of: the generated tables are arrays of these records. */
#ifndef TILEC_METAL_RECORDS_H_
#define TILEC_METAL_RECORDS_H_
#include <stdint.h>
#include <tilec/tilec.h>

enum { MAX_METAL_DEVICES = 1 }; /* the system's own GPU */

/* One source, ended by a NUL; `libraries` has, by device, what Metal made of it. */
typedef struct metal_image {
  const char* data;
  void** libraries;
} metal_image;

/* One launch, beside what tilec_launch_info says; `pipelines` are by device. */
typedef struct metal_launch {
  void** pipelines;
  const tilec_launch_info* info;
  uint32_t blocks_per_unit; /* at most so many blocks along x for each core of the GPU; 0 = all there are */
  const char* symbol;
} metal_launch;

/* The code of a variant. Bit d of `ready` is set once its pipelines are made for device d. */
typedef struct metal_code {
  _Atomic uint64_t ready;
  const metal_launch* launches;
  const metal_image* image;
} metal_code;

#endif
