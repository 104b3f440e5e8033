/* A stand-in for libnccl.so.2 beside running_cuda.c: ranks are threads of one process. A sum is a function in the rank's
 * stream, in which every rank waits for all. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 8, FLOAT32 = 7, BFLOAT16 = 9 };

typedef struct id {
  char bytes[128];
} id;

typedef struct sum {
  void* data;
  size_t count;
  int type, rank;
} sum;

static pthread_barrier_t all;
static const sum* parts[MOST_RANKS];
static int ranks;

static float read_number(const sum* part, size_t i) {
  if (part->type == FLOAT32) return ((const float*)part->data)[i];
  uint32_t bits = (uint32_t)((const uint16_t*)part->data)[i] << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static void write_number(const sum* part, size_t i, float value) {
  if (part->type == FLOAT32) {
    ((float*)part->data)[i] = value;
    return;
  }
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  ((uint16_t*)part->data)[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static void add(void* given) {
  const sum* own = given;
  float* total = calloc(own->count + 1, sizeof(float));
  parts[own->rank] = own;
  pthread_barrier_wait(&all);
  for (int rank = 0; rank < ranks; rank++)
    for (size_t i = 0; i < own->count; i++) total[i] += read_number(parts[rank], i);
  pthread_barrier_wait(&all);
  for (size_t i = 0; i < own->count; i++) write_number(own, i, total[i]);
  free(total);
  pthread_barrier_wait(&all);
}

const char* ncclGetErrorString(int result) { return result ? "invalid argument" : "no error"; }

int ncclGetUniqueId(id* out) {
  memset(out, 7, sizeof *out);
  return 0;
}

int ncclCommInitRank(void** out, int count, id given, int rank) {
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  if (count > MOST_RANKS || rank >= count || given.bytes[127] != 7) return 4;
  pthread_mutex_lock(&mutex);
  if (ranks == 0) pthread_barrier_init(&all, NULL, (unsigned)count);
  ranks = count;
  pthread_mutex_unlock(&mutex);
  pthread_barrier_wait(&all);
  *out = (void*)(intptr_t)(rank + 1);
  return 0;
}

int ncclAllReduce(const void* from, void* to, size_t count, int type, int operation, void* comm, void* stream) {
  typedef int (*launcher)(void*, void (*)(void*), void*);
  if (from != to || operation != 0 || (type != FLOAT32 && type != BFLOAT16)) return 4;
  sum* made = malloc(sizeof(sum)); /* graphs keep it */
  *made = (sum){to, count, type, (int)(intptr_t)comm - 1};
  launcher launch = (launcher)dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuLaunchHostFunc");
  return launch(stream, add, made);
}
