/* What code is made of that a device loads whole: the generated tables are arrays of these records. Each
 * family says in its own header for how many devices. */
#ifndef TILEC_LOADED_H_
#define TILEC_LOADED_H_
#include <stdint.h>
#include <tilec/tilec.h>

/* One image: a code object, or a source that ends with a NUL; by device, what was made of it. */
typedef struct loaded_image {
  const void* data;
  void** made;
} loaded_image;

/* One launch, beside what tilec_launch_info says; by device, its function or pipeline. */
typedef struct loaded_launch {
  void** made;
  const tilec_launch_info* info;
  uint32_t blocks_per_unit; /* at most so many blocks along x for each multiprocessor; 0 = all there are */
  const char* symbol;
} loaded_launch;

/* The code of a variant. Bit d of `ready` is set once all of it is made for device d. */
typedef struct loaded_code {
  _Atomic uint64_t ready;
  const loaded_launch* launches;
  const loaded_image* image;
} loaded_code;

#endif
