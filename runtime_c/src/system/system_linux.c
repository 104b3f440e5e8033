/* Linux: futexes, the auxiliary vector, and what x86 asks the kernel for. */
#include "system/cpus.h"
#include "system/system.h"

#include <limits.h>
#include <link.h>
#include <linux/futex.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "system/system_cpus.c"
#include "system/system_posix.c"

LOCAL void system_wait(uint32_t* word, uint32_t seen) {
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

LOCAL void system_wake_one(uint32_t* word) { syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0); }

LOCAL void system_wake_all(uint32_t* word) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static pthread_key_t end_key;
static pthread_once_t end_once = PTHREAD_ONCE_INIT;
static bool end_ready;
static void (*_Atomic end_of_thread)(void*); /* every thread sets it to the same */

static void make_end_key(void) { end_ready = pthread_key_create(&end_key, end_of_thread) == 0; }

LOCAL bool system_at_thread_end(void (*end)(void*), void* value) {
  end_of_thread = end;
  pthread_once(&end_once, make_end_key);
  return end_ready && pthread_setspecific(end_key, value) == 0;
}

/* What pthread_atfork calls; that one is no symbol of every glibc. Part of the Linux Standard Base. No DSO is
 * given, since the library is never unloaded. */
extern int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void* dso);

LOCAL void system_after_fork(void (*child)(void)) { __register_atfork(NULL, NULL, child, NULL); }

LOCAL uint32_t system_cpus(void) { return cpus_of_process(); }

LOCAL int system_cpu(void) { return sched_getcpu(); }

LOCAL void system_leave_cpu(int cpu) {
  cpu_set_t allowed, others;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
  others = allowed;
  CPU_CLR(cpu, &others);
  if (CPU_COUNT(&others) == 0 || sched_setaffinity(0, sizeof(others), &others) != 0) return;
  sched_setaffinity(0, sizeof(allowed), &allowed);
}

#if defined(__aarch64__)
LOCAL bool system_has(const cpu_test* test) {
  unsigned long word = getauxval(test->word == 1 ? AT_HWCAP : AT_HWCAP2);
  return (word & test->mask) == test->mask;
}

LOCAL bool system_permits(uint32_t component) { return component == 0; }
#else
enum { REQUEST_PERMISSION = 0x1023 }; /* of arch_prctl: asm/prctl.h of newer systems */

LOCAL bool system_permits(uint32_t component) {
  return syscall(SYS_arch_prctl, REQUEST_PERMISSION, (long)component) == 0;
}
#endif

typedef struct loaded_search {
  const char* stem;
  const char* path;
} loaded_search;

static int visit_object(struct dl_phdr_info* object, size_t size, void* data) {
  (void)size;
  loaded_search* search = data;
  if (!is_named(object->dlpi_name, search->stem)) return 0;
  search->path = object->dlpi_name;
  return 1;
}

LOCAL void* system_loaded(const char* stem, const char** path) {
  loaded_search search = {.stem = stem};
  if (!dl_iterate_phdr(visit_object, &search)) return NULL;
  *path = search.path;
  return keep_loaded(search.path);
}

LOCAL bool system_is_elevated(void) { return getauxval(AT_SECURE) != 0; }
