/* on_small_stack(function, arguments, bytes): calls a function of up to 16 pointers and 64-bit integers in a thread
 * whose stack has `bytes` bytes, and returns its result; -1 where there is no such thread. */
#include <pthread.h>
#include <stddef.h>

typedef long word;
typedef int (*callee)(word, word, word, word, word, word, word, word, word, word, word, word, word, word, word, word);

struct call {
  callee function;
  const word* arguments;
  int result;
};

static void* run(void* opaque) {
  struct call* call = opaque;
  const word* a = call->arguments;
  call->result = call->function(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12],
                                a[13], a[14], a[15]);
  return NULL;
}

int on_small_stack(callee function, const word* arguments, size_t bytes) {
  struct call call = {function, arguments, -1};
  pthread_attr_t attributes;
  pthread_t thread;
  if (pthread_attr_init(&attributes) != 0 || pthread_attr_setstacksize(&attributes, bytes) != 0) return -1;
  if (pthread_create(&thread, &attributes, run, &call) != 0) return -1;
  pthread_join(thread, NULL);
  return call.result;
}
