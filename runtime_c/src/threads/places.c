/* A system that keeps CPUs of a virtual machine free, or wakes a thread beside the one that wakes it, may run
 * a worker and its caller on one CPU for as long as a call lasts: both then take longer than the caller
 * alone. */
#include "threads/places.h"

#include <stdatomic.h>
#include <string.h>

#include "system/system.h"

enum { MOST_PLACES = 64 }; /* more workers share the last one */

static struct {
  _Atomic int32_t caller;               /* CPUs plus one; 0: not known */
  _Atomic int32_t workers[MOST_PLACES]; /* written where they change alone */
} places;

LOCAL void places_reset(void) { memset(&places, 0, sizeof(places)); }

static int32_t note_place(_Atomic int32_t* place) {
  int32_t here = (int32_t)system_cpu() + 1;
  if (atomic_load_explicit(place, memory_order_relaxed) != here)
    atomic_store_explicit(place, here, memory_order_relaxed);
  return here;
}

static _Atomic int32_t* workers_place(uint32_t home) {
  return &places.workers[home < MOST_PLACES ? home - 1 : MOST_PLACES - 1];
}

LOCAL void place_worker(uint32_t home) { note_place(workers_place(home)); }

LOCAL bool place_apart(uint32_t home) {
  int32_t caller = atomic_load_explicit(&places.caller, memory_order_relaxed);
  if (LIKELY(note_place(workers_place(home)) != caller || caller == 0)) return false;
  system_leave_cpu(caller - 1);
  place_worker(home);
  return true;
}

LOCAL void place_caller(void) { note_place(&places.caller); }

LOCAL bool place_is_shared(void) {
  int32_t caller = atomic_load_explicit(&places.caller, memory_order_relaxed);
  bool shared = false;
  for (uint32_t i = 0; i < MOST_PLACES; i++)
    shared |= atomic_load_explicit(&places.workers[i], memory_order_relaxed) == caller;
  return shared && caller != 0;
}
