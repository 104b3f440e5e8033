/* Scratch of tile kernels, a block for each thread that calls. */
#ifndef TILEC_WORKSPACE_H_
#define TILEC_WORKSPACE_H_
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tilec/tilec.h>

#include "compiler.h"

LOCAL bool round_up(uint64_t value, uint64_t multiple, uint64_t* out);
LOCAL void* scratch_reserve(uint64_t bytes); /* this thread's, grown on demand; NULL if there is no memory */
LOCAL tilec_status scratch_for(uint64_t bytes_per_worker, uint32_t workers, void** out);

#endif
