/* What the two programs of the dispatch benchmark call: the classes of shapes, and both ways to ask.
 *
 * The shapes are read from the file that bench.py writes: for each class SHAPES times M, N, K as int64. */
#ifndef BENCH_CALLS_H_
#define BENCH_CALLS_H_
#include <bench.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHAPES = 4096, CLASSES = 9 };
enum { SELECT, DOOR, WAYS };
static const char* const class_names[CLASSES] = {"exact", "guarded", "fallback", "chosen", "growing",
                                                 "again", "turns",   "weights",  "miss"};
static const char* const way_names[WAYS] = {"select", "door"};

static int64_t shapes[CLASSES][SHAPES][3];
static float tensor[16];
static tilec_exec run;
static const tilec_library* library;
static const tilec_kernel* kernels[CLASSES];
static const char* const kernel_names[CLASSES] = {"open",   "open",   "open",    "priced", "priced",
                                                  "priced", "priced", "weights", "closed"};
typedef tilec_status (*typed_door)(const tilec_exec*, float*, int64_t, int64_t, int64_t);
static const typed_door doors[CLASSES] = {bench_open,   bench_open,   bench_open,    bench_priced, bench_priced,
                                          bench_priced, bench_priced, bench_weights, bench_closed};

static void fail(const char* what) {
  fprintf(stderr, "%s: %s\n", what, bench_last_error());
  exit(1);
}

static void load(const char* path) {
  FILE* file = fopen(path, "rb");
  if (!file || fread(shapes, sizeof(shapes), 1, file) != 1) fail(path);
  fclose(file);
  run.struct_size = sizeof(run);
  run.device.device_type = kDLCPU;
  run.flags = TILEC_EXEC_SERIAL;
  library = bench_library();
  for (int which = 0; which < CLASSES; which++)
    kernels[which] = library->find(kernel_names[which]);
  if (library->preload(NULL, run.device) != TILEC_OK) fail("preload");
}

/* Whether the class was answered as it should be: the last one by no variant. */
static int call(int way, int which, int shape) {
  const int64_t* dims = shapes[which][shape];
  const tilec_variant* found = NULL;
  tilec_status status;
  if (way == SELECT)
    status = library->select(kernels[which], run.device, dims, NULL, &found);
  else
    status = doors[which](&run, tensor, dims[0], dims[1], dims[2]);
  return status == (which == CLASSES - 1 ? TILEC_ERR_NO_VARIANT : TILEC_OK);
}

#endif
