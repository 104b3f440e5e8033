/* Warm calls neither allocate nor lock: the program stands between the library and libc and counts. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <sample.h>
#include <stdio.h>
#include <stdlib.h>

static int counting, count;

#define COUNT() (count += counting)

void *malloc(size_t size) {
  static void *(*real)(size_t);
  if (!real) *(void **)&real = dlsym(RTLD_NEXT, "malloc");
  COUNT();
  return real(size);
}

int posix_memalign(void **out, size_t alignment, size_t size) {
  static int (*real)(void **, size_t, size_t);
  if (!real) *(void **)&real = dlsym(RTLD_NEXT, "posix_memalign");
  COUNT();
  return real(out, alignment, size);
}

int pthread_mutex_lock(pthread_mutex_t *mutex) {
  static int (*real)(pthread_mutex_t *);
  if (!real) *(void **)&real = dlsym(RTLD_NEXT, "pthread_mutex_lock");
  COUNT();
  return real(mutex);
}

int pthread_once(pthread_once_t *once, void (*function)(void)) {
  static int (*real)(pthread_once_t *, void (*)(void));
  if (!real) *(void **)&real = dlsym(RTLD_NEXT, "pthread_once");
  COUNT();
  return real(once, function);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*function)(void *), void *arg) {
  static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
  if (!real) *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
  COUNT();
  return real(thread, attributes, function, arg);
}

enum { N = 64 * 100 };
static float a[N], b[N], c[N];

static int call(void) { return sample_add(NULL, a, b, c, N) == TILEC_OK && sample_add(NULL, a, b, c, 100) == TILEC_OK; }

int main(void) {
  counting = 1;
  if (!call() || count == 0) {
    printf("the first call was not seen: %d\n", count);
    return 1;
  }
  count = 0;
  for (int i = 0; i < 1000; i++) {
    if (!call()) return 1;
  }
  counting = 0;
  printf("%d\n", count);
  return 0;
}
