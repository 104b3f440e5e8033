/* Waiting for another thread for a moment, before sleeping. */
#include "threads/spin.h"

#include "system/system.h"

#if defined(__x86_64__)
#define CPU_RELAX() __builtin_ia32_pause()
#else
#define CPU_RELAX() __asm__ volatile("yield")
#endif

enum {
  TURNS_TO_LOOK = 64, /* 2 us of pauses; a yield that nobody waits for is a fifth of that */
  LONG_NS = 200000,   /* a thread that moves to another CPU meanwhile takes a fourth of that */
  TIMES_AS_LONG = 64
};

LOCAL void give_way(courtesy* polite) {
  int64_t start = system_now_ns();
  if (start < polite->next) return;
  system_yield();
  int64_t took = system_now_ns() - start;
  if (UNLIKELY(took > LONG_NS)) polite->next = start + TIMES_AS_LONG * took;
}

LOCAL bool spin_turn(spin* turn) {
  CPU_RELAX();
  return UNLIKELY(++turn->turns % TURNS_TO_LOOK == 0);
}

LOCAL bool spin_is_over(spin* turn, int64_t most_ns) {
  int64_t now = system_now_ns();
  if (turn->end == 0) turn->end = now + most_ns;
  return now >= turn->end;
}
