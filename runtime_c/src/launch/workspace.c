/* Scratch of tile kernels: every calling thread owns one block that grows to its largest need and is freed
 * when the thread ends. The workers of a call share the caller's block by worker number, so that calls from
 * several threads never meet. Memory that no kernel touches is never committed. */
#include "launch/workspace.h"

#include "keep.h"
#include "records.h"
#include "status.h"
#include "system/system.h"

typedef struct scratch_block {
  uint64_t bytes;
  char pad[CPU_ALIGN - sizeof(uint64_t)];
} scratch_block;

LOCAL bool round_up(uint64_t value, uint64_t multiple, uint64_t* out) {
  if (__builtin_add_overflow(value, multiple - 1, out)) return false;
  *out -= *out % multiple;
  return true;
}

static bool scratch_grow(uint64_t bytes) {
  uint64_t total;
  if (!round_up(bytes, CPU_ALIGN, &bytes)) return false;
  if (__builtin_add_overflow(bytes, sizeof(scratch_block), &total) || total > SIZE_MAX / 2) return false;
  void* memory = system_allocate(CPU_ALIGN, (size_t)total);
  if (!memory) return false;
  system_free(mine.scratch);
  mine.scratch = memory;
  mine.scratch->bytes = bytes;
  thread_keep();
  return true;
}

LOCAL void* scratch_reserve(uint64_t bytes) {
  bool enough = mine.scratch && mine.scratch->bytes >= bytes;
  if (UNLIKELY(!enough) && !scratch_grow(bytes)) return NULL;
  return mine.scratch + 1;
}

static uint64_t apart(uint64_t bytes_per_worker) {
  return bytes_per_worker < MOST_APART ? bytes_per_worker : MOST_APART;
}

LOCAL uint64_t scratch_pitch(uint64_t bytes_per_worker) { return bytes_per_worker + apart(bytes_per_worker); }

LOCAL char* scratch_of(char* all, uint64_t bytes_per_worker, uint32_t worker) {
  if (!all || bytes_per_worker == 0) return NULL;
  return all + worker * scratch_pitch(bytes_per_worker) + apart(bytes_per_worker);
}

/* `workers` blocks of scratch one after the other; NULL where the kernel needs none. */
LOCAL tilec_status scratch_for(uint64_t bytes_per_worker, uint32_t workers, void** out) {
  *out = NULL;
  if (bytes_per_worker == 0) return TILEC_OK;
  uint64_t total;
  bool overflow = __builtin_mul_overflow(scratch_pitch(bytes_per_worker), (uint64_t)workers, &total);
  *out = overflow ? NULL : scratch_reserve(total);
  if (*out) return TILEC_OK;
  return fail(TILEC_ERR_WORKSPACE, "no memory for %u workers with %llu bytes of scratch each", workers,
              (unsigned long long)bytes_per_worker);
}
