/* What a call needs beside its arguments, on any device: the extents of its grids and its workspace. */
#ifndef TILEC_SLICES_H_
#define TILEC_SLICES_H_
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tilec/tilec.h>

#include "compiler.h"
#include "records.h"

/* The dims as the code and the texts of a variant take them. With takes_num_sms a copy in `room`, of
 * MAX_DIMS, whose last is the number of the device's multiprocessors, on a CPU of the workers that `exec`
 * lets a call have: inside of a parallel region too, so that a workspace measured there serves outside. */
LOCAL const int64_t* launch_dims(const kernel_record* kernel, const variant_record* variant,
                                 const tilec_exec* exec, const int64_t* dims, int64_t* room);
/* Where the slices lie in the workspace, and how long both are. */
typedef struct workspace_layout {
  uint64_t offsets[MAX_SLICES];
  uint64_t slices, total;
} workspace_layout;
LOCAL tilec_status measure(const kernel_record* kernel, const variant_record* variant, const tilec_exec* exec,
                           const int64_t* dims, workspace_layout* layout);
LOCAL tilec_status place_slices(const kernel_record* kernel, const variant_record* variant,
                                const tilec_exec* exec, const workspace_layout* layout, void** slices);
LOCAL tilec_status eval_grids(const kernel_record* kernel, const variant_record* variant,
                              const tilec_value* params, const int64_t* dims, int64_t* grids);

#endif
