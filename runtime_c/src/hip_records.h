/* What the AMD code of a library is made of: the generated tables are arrays of these records. */
#ifndef TILEC_HIP_RECORDS_H_
#define TILEC_HIP_RECORDS_H_
#include <stdint.h>
#include <tilec/tilec.h>

enum { MAX_HIP_DEVICES = 64 }; /* bits of hip_code.ready */

/* One code object; `modules` has, by device, what HIP made of it. */
typedef struct hip_image {
  const void* data;
  void** modules;
} hip_image;

/* One launch, beside what tilec_launch_info says; `functions` are by device. */
typedef struct hip_launch {
  void** functions;
  const tilec_launch_info* info;
  uint32_t blocks_per_unit; /* at most so many blocks along x for each compute unit; 0 = all there are */
  const char* symbol;
} hip_launch;

/* The code of a variant. Bit d of `ready` is set once its kernels are loaded for device d. */
typedef struct hip_code {
  _Atomic uint64_t ready;
  const hip_launch* launches;
  const hip_image* image;
} hip_code;

#endif
