/* Memory of one thread that is freed when the thread ends. */
#include "keep.h"

#include <stdlib.h>

#include "system/system.h"

/* Destructors of others that run later may call again: nothing points to what is freed. */
static void forget(void* state) {
  thread_state* ended = state;
  free(ended->error);
  system_free(ended->scratch);
#define X(name) system_free(ended->name##_kept);
  DEVICE_FAMILIES
#undef X
  free(ended->line);
  *ended = (thread_state){.check = ended->check, .task_depth = ended->task_depth};
}

LOCAL void thread_keep(void) {
  if (!mine.kept) mine.kept = system_at_thread_end(forget, &mine);
}
