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

/* In front of a worker's scratch lies as much as that again, up to so much. Prefetchers run past the end of
 * what a core walks through, and would bring it lines that the next worker writes: 16 KiB apart such workers
 * take up to 1.4 times as long as 32 KiB apart (docs/performance/dispatch.md). */
enum { MOST_APART = 64 * 1024 };

LOCAL uint64_t scratch_pitch(uint64_t bytes_per_worker);
LOCAL char* scratch_of(char* all, uint64_t bytes_per_worker, uint32_t worker);
LOCAL tilec_status scratch_for(uint64_t bytes_per_worker, uint32_t workers, void** out);

#endif
