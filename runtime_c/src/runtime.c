/* The whole runtime as one translation unit. A generated file, the same for all libraries of a kind, includes
 * it after the CPU detection table, DEVICE_FAMILIES, CALLS_RUNTIME (an entry prints or checks) and what there
 * is room for (tilec/capacity.py), and defines the families of devices (cuda.c) below it, with _GNU_SOURCE
 * set throughout; doors for further calling conventions are further files here. The tables of a library
 * define this_library and call what doors.h has. A reader begins with records.h. */
#if __SIZEOF_POINTER__ != 8 || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "libraries are for 64-bit, little-endian systems"
#endif
#include "layout.h"

_Static_assert(MAX_PARAMS <= 64, "sets of parameters are bits of a word");

/* A file stands on those above it. */
#include "system.c"
#include "keep.c"
#include "status.c"
#include "family.c"
#include "settings.c"
#include "own.c"
#include "cpu.c"
#include "choice.c"
#include "dispatch.c"
#include "explain.c"
#include "tensors.c"
#include "overlap.c"
#include "args.c"
#include "workspace.c"
#include "work_queue.c"
#include "gomp.c"
#include "pool.c"
#include "threads.c"
#include "pace.c"
#include "exec.c"
#include "slices.c"
#include "device_args.c"
#include "call.c"
#include "lines.c"
#include "last_cache.c"
#include "host.c"
#include "library.c"
#include "tvm_ffi.c"
