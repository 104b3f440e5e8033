/* macOS: condition variables, since waiting on addresses is public from 14.4 on only, and sysctl. A library
 * with thread-local variables is never unloaded there. */
#include "system/system.h"

#include <mach-o/dyld.h>
#include <sys/sysctl.h>
#include <unistd.h>

#include "system/system_posix.c"

/* One for all words: a sleeper looks at its own again. What wakes has changed the word before. */
static pthread_mutex_t wait_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wait_change = PTHREAD_COND_INITIALIZER;

LOCAL void system_wait(uint32_t* word, uint32_t seen) {
  pthread_mutex_lock(&wait_mutex);
  if (__atomic_load_n(word, __ATOMIC_SEQ_CST) == seen) pthread_cond_wait(&wait_change, &wait_mutex);
  pthread_mutex_unlock(&wait_mutex);
}

LOCAL void system_wake_all(uint32_t* word) {
  (void)word;
  pthread_mutex_lock(&wait_mutex); /* nobody is between its look at the word and its sleep */
  pthread_cond_broadcast(&wait_change);
  pthread_mutex_unlock(&wait_mutex);
}

LOCAL void system_wake_one(uint32_t* word) { system_wake_all(word); }

/* What destructors of C++'s thread_local go through. The memory of thread-local variables is given back by a
 * pthread key that is older than any that a library makes, too early for it. */
extern void _tlv_atexit(void (*end)(void*), void* value);

LOCAL bool system_at_thread_end(void (*end)(void*), void* value) {
  _tlv_atexit(end, value);
  return true;
}

static void (*forked_child)(void);

static void renew_waits(void) {
  pthread_mutex_init(&wait_mutex, NULL);
  pthread_cond_init(&wait_change, NULL);
  forked_child();
}

LOCAL void system_after_fork(void (*child)(void)) {
  forked_child = child;
  pthread_atfork(NULL, NULL, renew_waits);
}

LOCAL uint32_t system_cpus(void) {
  long count = sysconf(_SC_NPROCESSORS_ONLN);
  return count > 0 ? (uint32_t)count : 0;
}

/* Threads cannot be told where to run there. */
LOCAL int system_cpu(void) { return -1; }

LOCAL void system_leave_cpu(int cpu) { (void)cpu; }

#if defined(__aarch64__)
LOCAL bool system_has(const cpu_test* test) {
  int32_t value = 0;
  size_t size = sizeof(value);
  return sysctlbyname(test->name, &value, &size, NULL, 0) == 0 && value != 0;
}
#endif

LOCAL bool system_permits(uint32_t component) { return component == 0; }

LOCAL void* system_loaded(const char* stem, const char** path) {
  for (uint32_t i = 0; i < _dyld_image_count(); i++) {
    const char* name = _dyld_get_image_name(i);
    if (!name || !is_named(name, stem)) continue;
    *path = name;
    return keep_loaded(name);
  }
  return NULL;
}

LOCAL bool system_is_elevated(void) { return issetugid() != 0; }
