/* The whole runtime as one translation unit. The generated tables include it after the CPU detection table
 * and define this_library below it, with _GNU_SOURCE set throughout; doors for further devices and calling
 * conventions are further files here. */
#include "arith.h"
#include "cpu.h"
#include "internal.h"

#include "status.c"
#include "settings.c"
#include "cpu.c"
#include "dispatch.c"
#include "explain.c"
#include "tensors.c"
#include "args.c"
#include "workspace.c"
#include "threads.c"
#include "gomp.c"
#include "pool.c"
#include "exec.c"
#include "call.c"
#include "library.c"
