/* The whole runtime as one translation unit. A generated file, the same for all libraries of a kind, includes
 * it after the CPU detection table, DEVICE_FAMILIES, CALLS_RUNTIME (an entry prints or checks) and what there
 * is room for (tilec/capacity.py), and defines the families of devices (devices/cuda/cuda.c) below it, with
 * _GNU_SOURCE set throughout. The tables of a library define this_library and call what doors.h has.
 *
 * system: what operating systems answer      dispatch: which variant a call gets, and why
 * arguments: tensors as calls bring them     threads: the pool, the caller's own, OpenMP's
 * launch: one call, its grids and workspace  devices: which device runs code, a folder for each family
 * doors: calling conventions, a file each    beside them: what all of these share
 *
 * A reader begins with records.h. */
#if __SIZEOF_POINTER__ != 8 || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "libraries are for 64-bit, little-endian systems"
#endif
#include "layout.h"

_Static_assert(MAX_PARAMS <= 64, "sets of parameters are bits of a word");

/* A file stands on those above it. */
#include "system/system.c"
#include "keep.c"
#include "status.c"
#include "devices/family.c"
#include "settings.c"
#include "own.c"
#include "dispatch/cpu.c"
#include "dispatch/guards.c"
#include "dispatch/choice.c"
#include "dispatch/dispatch.c"
#include "dispatch/explain.c"
#include "arguments/tensors.c"
#include "arguments/overlap.c"
#include "arguments/args.c"
#include "launch/workspace.c"
#include "threads/work_queue.c"
#include "threads/gomp.c"
#include "threads/spin.c"
#include "threads/places.c"
#include "threads/pool.c"
#include "threads/threads.c"
#include "threads/pace.c"
#include "launch/exec.c"
#include "launch/slices.c"
#include "arguments/device_args.c"
#include "launch/call.c"
#include "launch/lines.c"
#include "launch/last_cache.c"
#include "devices/driver.c"
#include "devices/host.c"
#include "doors/library.c"
#include "doors/tvm_ffi.c"
