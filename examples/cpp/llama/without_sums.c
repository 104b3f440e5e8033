/* An NCCL whose sums do nothing: beside it gpu.py times what a step of several GPUs takes with them. Tokens are wrong. */
#include <stddef.h>

typedef struct id {
  char bytes[128];
} id;

const char* ncclGetErrorString(int result) { return (void)result, "no error"; }

int ncclGetUniqueId(id* out) { return *out = (id){{0}}, 0; }

int ncclCommInitRank(void** out, int count, id given, int rank) { return (void)count, (void)given, (void)rank, *out = NULL, 0; }

int ncclAllReduce(const void* from, void* to, size_t count, int type, int operation, void* comm, void* stream) {
  return (void)from, (void)to, (void)count, (void)type, (void)operation, (void)comm, (void)stream, 0;
}
