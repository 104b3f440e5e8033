/* Memory of one thread that is freed when the thread ends. */
#include "keep.h"

#include <pthread.h>
#include <stdlib.h>

static pthread_key_t keep_key;
static pthread_once_t keep_once = PTHREAD_ONCE_INIT;
static bool keep_ready;

/* Destructors of others that run later may call again: nothing points to what is freed. */
static void forget(void* state) {
  thread_state* ended = state;
  free(ended->error);
  free(ended->scratch);
#define X(name) free(ended->name##_kept);
  DEVICE_FAMILIES
#undef X
  free(ended->line);
  *ended = (thread_state){.check = ended->check, .task_depth = ended->task_depth};
}

static void make_keep_key(void) { keep_ready = pthread_key_create(&keep_key, forget) == 0; }

LOCAL void thread_keep(void) {
  if (mine.kept) return;
  pthread_once(&keep_once, make_keep_key);
  mine.kept = keep_ready && pthread_setspecific(keep_key, &mine) == 0;
}
