/* tilec_exec: how one call runs. */
#ifndef TILEC_EXEC_H_
#define TILEC_EXEC_H_
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tilec/tilec.h>

#include "compiler.h"

INLINE tilec_status check_exec(const tilec_exec** exec); /* replaces NULL by the default */
LOCAL bool uses_callers_threads(const tilec_exec* exec);
LOCAL uint32_t most_workers(const tilec_exec* exec); /* on a thread that may have workers beside it */
LOCAL uint32_t workers_of(const tilec_exec* exec);

#endif
