/* What Linux and macOS answer alike. */
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "system/system.h"

LOCAL void system_run_once(system_once* once, void (*work)(void)) { pthread_once(once, work); }
LOCAL void system_lock(system_mutex* mutex) { pthread_mutex_lock(mutex); }
LOCAL void system_unlock(system_mutex* mutex) { pthread_mutex_unlock(mutex); }
LOCAL void system_renew(system_mutex* mutex) { pthread_mutex_init(mutex, NULL); }

/* What each new thread runs. */
static void (*_Atomic thread_body)(uint32_t);

static void* thread_main(void* argument) {
  void (*body)(uint32_t) = thread_body;
  body((uint32_t)(uintptr_t)argument);
  return NULL;
}

LOCAL bool system_start_thread(void (*run)(uint32_t), uint32_t argument) {
  pthread_t thread;
  sigset_t all, before;
  thread_body = run;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  bool started = pthread_create(&thread, NULL, thread_main, (void*)(uintptr_t)argument) == 0;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (started) pthread_detach(thread);
  return started;
}

LOCAL void* system_open(const char* file, char* why, size_t size) {
  void* library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (library) return library;
  const char* said = dlerror();
  snprintf(why, size, "%s", said ? said : "it cannot be opened");
  return NULL;
}

/* Whether the file of a path has this name before its first dot, or dash. */
static bool is_named(const char* path, const char* stem) {
  const char* slash = strrchr(path, '/');
  const char* file = slash ? slash + 1 : path;
  size_t length = strlen(stem);
  return strncmp(file, stem, length) == 0 && (file[length] == '.' || file[length] == '-');
}

static void* keep_loaded(const char* path) { return dlopen(path, RTLD_LAZY | RTLD_NOLOAD); }

LOCAL void* system_symbol(void* library, const char* name) {
  return dlsym(library ? library : RTLD_DEFAULT, name);
}

LOCAL void system_yield(void) { sched_yield(); }

LOCAL int64_t system_now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

LOCAL void* system_allocate(size_t align, size_t size) {
  void* memory;
  return posix_memalign(&memory, align, size) == 0 ? memory : NULL;
}

LOCAL void system_free(void* memory) { free(memory); }
