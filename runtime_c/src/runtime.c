/* The whole runtime as one translation unit. The generated tables include it after the CPU detection table,
 * DEVICE_FAMILIES and CALLS_RUNTIME (an entry prints or checks), and define this_library and the families of devices
 * (cuda.c) below it, with _GNU_SOURCE set throughout; doors for further calling conventions are further files here. */
#if !defined(__linux__) || !defined(__LP64__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "libraries are for 64-bit, little-endian Linux"
#endif
#include "arith.h"
#include "cpu.h"
#include "internal.h"
#include "layout.h"

#include "keep.c"
#include "status.c"
#include "settings.c"
#include "cpu.c"
#include "dispatch.c"
#include "explain.c"
#include "tensors.c"
#include "overlap.c"
#include "args.c"
#include "workspace.c"
#include "threads.c"
#include "gomp.c"
#include "pool.c"
#include "pace.c"
#include "exec.c"
#include "slices.c"
#include "lines.c"
#include "call.c"
#include "host.c"
#include "library.c"
#include "tvm_ffi.c"
