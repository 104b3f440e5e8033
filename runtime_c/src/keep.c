/* Memory of one thread that is freed when the thread ends. */
#include "internal.h"

#include <pthread.h>
#include <stdlib.h>

static pthread_key_t keep_keys[NUM_KEPT];
static pthread_once_t keep_once = PTHREAD_ONCE_INIT;
static bool keep_ready;

static void make_keep_keys(void) {
  keep_ready = true;
  for (int i = 0; i < NUM_KEPT; i++) keep_ready &= pthread_key_create(&keep_keys[i], free) == 0;
}

LOCAL bool thread_keep(int what, void* memory) {
  pthread_once(&keep_once, make_keep_keys);
  return keep_ready && pthread_setspecific(keep_keys[what], memory) == 0;
}
