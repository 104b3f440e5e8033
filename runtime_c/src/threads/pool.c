/* The library's own threads: spin for a while, then sleep until the word changes.
 *
 * One 64-bit word, the gate, says everything about the job on offer: its number, whether it is closed, how
 * many threads ever entered (which numbers the workers) and how many are inside. A thread that wakes late
 * finds the gate closed and is not waited for. */
#include "threads/pool.h"

#include <stdatomic.h>
#include <string.h>

#include "status.h"
#include "system/system.h"
#include "threads/places.h"
#include "threads/spin.h"
#include "threads/work_queue.h"

/* Waking a thread takes tens of microseconds, in a virtual machine up to a thousand: one that is between two
 * launches, or two calls in a row, is to be found awake. */
enum { SPIN_NS_BEFORE_SLEEP = 500000, SPIN_NS_BEFORE_WAIT = 100000 };

#define GATE_JOB(gate)     ((uint32_t)((gate) >> 32))
#define GATE_CLOSED        (UINT64_C(1) << 31)
#define GATE_ENTERED(gate) ((uint32_t)((gate) >> 16 & 0x7FFF))
#define GATE_INSIDE(gate)  ((uint32_t)((gate) & 0xFFFF))
#define GATE_ONE_ENTERS    ((UINT64_C(1) << 16) + 1)

static struct {
  _Alignas(64) _Atomic uint64_t gate;
  _Alignas(64) _Atomic uint32_t doorbell; /* changes with every job; sleepers wait on it */
  _Atomic uint32_t sleepers;
  atomic_bool is_awaited;         /* the caller sleeps on the gate's low half until nobody is inside */
  _Alignas(64) atomic_bool taken; /* one job at a time */
  _Atomic uint32_t num_threads;   /* changed by the owner of `taken` alone */
  _Atomic uint32_t limit;         /* helpers that the job on offer admits */
  _Atomic uint32_t num_homes;     /* threads that ever ran */
  courtesy polite;                /* of who has `taken` it */
  work_queue queue;
} pool = {.gate = GATE_CLOSED};

LOCAL void pool_reset(void) {
  memset(&pool, 0, sizeof(pool));
  places_reset();
  atomic_store(&pool.gate, GATE_CLOSED);
}

/* The worker number, or 0 if the gate is closed or enough are inside. */
static uint32_t gate_enter(void) {
  uint64_t gate = atomic_load_explicit(&pool.gate, memory_order_acquire);
  while (!(gate & GATE_CLOSED) &&
         GATE_ENTERED(gate) < atomic_load_explicit(&pool.limit, memory_order_relaxed)) {
    if (atomic_compare_exchange_weak_explicit(&pool.gate, &gate, gate + GATE_ONE_ENTERS, memory_order_acq_rel,
                                              memory_order_acquire)) {
      return GATE_ENTERED(gate) + 1;
    }
  }
  return 0;
}

/* The half of the gate that says who is inside, to sleep on. */
static uint32_t* gate_half(void) { return (uint32_t*)(void*)&pool.gate; }

static void gate_leave(void) {
  atomic_fetch_sub(&pool.gate, 1);
  if (UNLIKELY(atomic_load(&pool.is_awaited))) system_wake_one(gate_half());
}

static uint32_t* doorbell_word(void) { return (uint32_t*)(void*)&pool.doorbell; }

static void sleep_until_ring(uint32_t heard) {
  atomic_fetch_add(&pool.sleepers, 1);
  system_wait(doorbell_word(), heard);
  atomic_fetch_sub(&pool.sleepers, 1);
}

static uint32_t wait_for_ring(uint32_t heard, courtesy* polite) {
  spin turn = {0};
  for (;;) {
    uint32_t now = atomic_load_explicit(&pool.doorbell, memory_order_acquire);
    if (now != heard) return now;
    if (!spin_turn(&turn)) continue;
    give_way(polite);
    if (spin_is_over(&turn, SPIN_NS_BEFORE_SLEEP)) sleep_until_ring(heard);
  }
}

/* Workers are numbered as they come, ranges are a thread's own from job to job; the caller's is the first. */
static void pool_thread(uint32_t heard) {
  uint32_t home = atomic_fetch_add_explicit(&pool.num_homes, 1, memory_order_relaxed) + 1;
  courtesy polite = {0};
  for (;;) {
    place_worker(home);
    heard = wait_for_ring(heard, &polite);
    if (place_apart(home)) polite = (courtesy){0};
    uint32_t worker = gate_enter();
    if (!worker) continue;
    work_queue_drain(&pool.queue, worker, home);
    gate_leave();
  }
}

static bool start_thread(void) { return system_start_thread(pool_thread, atomic_load(&pool.doorbell)); }

static void grow_to(uint32_t num_threads) {
  if (LIKELY(pool.num_threads >= num_threads)) return;
  while (pool.num_threads < num_threads && start_thread()) pool.num_threads++;
  if (pool.num_threads < num_threads)
    log_line(TILEC_LOG_WARN, "threads: only %u of %u could be started", pool.num_threads, num_threads);
}

/* A worker that has the caller's CPU goes to another one as soon as it runs, so it is to run for a moment. */
static void ring(void) {
  place_caller();
  atomic_fetch_add(&pool.doorbell, 1);
  bool wakes = atomic_load(&pool.sleepers) != 0;
  if (wakes) system_wake_all(doorbell_word());
  if (wakes || place_is_shared()) give_way(&pool.polite);
}

static void gate_open(uint32_t limit) {
  atomic_store_explicit(&pool.limit, limit, memory_order_relaxed);
  uint64_t job = GATE_JOB(atomic_load(&pool.gate)) + UINT64_C(1);
  atomic_store_explicit(&pool.gate, job << 32, memory_order_release);
  ring();
}

/* Where there are fewer CPUs than threads, a thread inside may need the one that the caller holds. */
static void sleep_until_empty(void) {
  atomic_store(&pool.is_awaited, true);
  uint64_t gate;
  while (GATE_INSIDE(gate = atomic_load(&pool.gate)) != 0) system_wait(gate_half(), (uint32_t)gate);
  atomic_store(&pool.is_awaited, false);
}

static void gate_close(void) {
  atomic_fetch_or_explicit(&pool.gate, GATE_CLOSED, memory_order_acq_rel);
  spin turn = {0};
  while (GATE_INSIDE(atomic_load_explicit(&pool.gate, memory_order_acquire)) != 0) {
    if (!spin_turn(&turn)) continue;
    if (place_is_shared()) give_way(&pool.polite);
    if (spin_is_over(&turn, SPIN_NS_BEFORE_WAIT)) return sleep_until_empty();
  }
}

LOCAL bool pool_sleeps(void) {
  return atomic_load(&pool.num_threads) == 0 || atomic_load(&pool.sleepers) != 0;
}

LOCAL bool pool_run(uint32_t workers, int64_t n, int64_t grain, tilec_task task, void* closure) {
  if (atomic_exchange_explicit(&pool.taken, true, memory_order_acquire)) return false;
  grow_to(workers - 1);
  work_queue_fill(&pool.queue, workers, n, grain, task, closure);
  gate_open(workers - 1);
  work_queue_drain(&pool.queue, 0, 0);
  gate_close();
  atomic_store_explicit(&pool.taken, false, memory_order_release);
  return true;
}
