/* Tensor maps of known sizes. What a map says beside its address is a function of its sizes and of constants
 * of the build: each thread keeps some maps, to which the driver adds the address of a call in half the time
 * that encoding takes. Nothing about them can become wrong. */
#include "devices/cuda/cuda.h"

#include <string.h>

#include "dispatch/hash.h"
#include "keep.h"
#include "system/system.h"

/* A map is in the set that its sizes lead to, where two have room: the later one first. */
enum { SET_BITS = 5, SET_SIZE = 2, NUM_TEMPLATES = SET_SIZE << SET_BITS };

typedef struct map_template {
  _Alignas(64) unsigned char bytes[CU_MAP_BYTES];
  const tensor_map* map; /* NULL: free */
  int64_t sizes[MAX_MAP_SIZES];
} map_template;

static COLD map_template* make_templates(void) {
  void* made = system_allocate(64, sizeof(map_template) * NUM_TEMPLATES);
  if (!made) return NULL;
  memset(made, 0, sizeof(map_template) * NUM_TEMPLATES);
  mine.cuda_kept = made;
  thread_keep();
  return made;
}

static uint32_t num_sizes(const tensor_map* map) { return 2 * map->rank - 1; }

static map_template* set_of(map_template* all, const tensor_map* map, const int64_t* sizes) {
  uint64_t hash = (uintptr_t)map;
  for (uint32_t i = 0; i < num_sizes(map); i++) hash = hash_mix(hash, (uint64_t)sizes[i]);
  return &all[SET_SIZE * hash_top_bits(hash, SET_BITS)];
}

static bool is_kept(const map_template* kept, const tensor_map* map, const int64_t* sizes) {
  int64_t differs = kept->map != map;
  for (uint32_t i = 0; i < num_sizes(map); i++) differs |= kept->sizes[i] ^ sizes[i];
  return differs == 0;
}

LOCAL bool reuse_map(const tensor_map* map, void* address, const int64_t* sizes, unsigned char* out) {
  map_template* all = mine.cuda_kept;
  if (UNLIKELY(!all)) return false;
  const map_template* kept = set_of(all, map, sizes);
  if (!is_kept(kept, map, sizes) && !is_kept(++kept, map, sizes)) return false;
  memcpy(out, kept->bytes, CU_MAP_BYTES);
  return cuda.replace_address(out, address) == CUDA_OK;
}

LOCAL void keep_map(const tensor_map* map, const int64_t* sizes, const unsigned char* bytes) {
  map_template* all = mine.cuda_kept ? mine.cuda_kept : make_templates();
  if (!all) return;
  map_template* kept = set_of(all, map, sizes);
  kept[1] = kept[0];
  kept->map = map;
  memcpy(kept->sizes, sizes, num_sizes(map) * sizeof(*sizes));
  memcpy(kept->bytes, bytes, CU_MAP_BYTES);
}
