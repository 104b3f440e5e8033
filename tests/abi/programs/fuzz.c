/* A fuzz target for the generic door: bytes become kernels, execs and arguments that are mostly right, and the
 * library must answer each with a status. Tensors lie in blocks of exactly their size, so that AddressSanitizer
 * sees what is read or written past them; where no block could be that large, a parallel_for that runs nothing
 * stands in for the launch. */
#include <sample.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
long fuzz_accepted; /* launches that were */

#define REQUIRE(condition)                                                                 \
  do {                                                                                     \
    if (!(condition)) {                                                                    \
      fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, sample_last_error());     \
      abort();                                                                             \
    }                                                                                      \
  } while (0)

enum { MOST_ARGS = 16, MOST_AXES = 4, MOST_BYTES = 1 << 16 };

/* ---- bytes as choices ---- */

typedef struct input { const uint8_t *at, *end; } input;

static uint8_t take(input *from) { return from->at < from->end ? *from->at++ : 0; }

/* True for about one byte in `odds`; never once the bytes are used up. */
static int rarely(input *from, int odds) { return take(from) > 255 - 256 / odds; }

static int64_t take_int64(input *from) {
  uint64_t value = 0;
  for (int i = 0; i < 8; i++) value = value << 8 | take(from);
  return (int64_t)value;
}

static int64_t odd_value(input *from) {
  static const int64_t values[] = {-1, INT64_MIN, INT64_MAX, INT32_MAX, 0, 1, 3, 64, 1000, INT64_C(1) << 32,
                                   INT64_C(1) << 61, 2146435071, 2146435072};
  uint8_t which = take(from);
  return which < sizeof(values) / sizeof(*values) ? values[which] : take_int64(from);
}

/* ---- arguments ---- */

typedef struct tensors {
  DLTensor tensor[MOST_ARGS];
  int64_t shape[MOST_ARGS][MOST_AXES], strides[MOST_ARGS][MOST_AXES];
  void *blocks[MOST_ARGS];
  int count, unbacked;
} tensors;

static int64_t extent_of(const tilec_extent *extent, const int64_t *dims) {
  if (extent->dim >= 0) return dims[extent->dim];
  return extent->dim == TILEC_EXTENT_CONSTANT ? extent->value : dims[0] / 2;
}

/* Bytes up to the end of the last element; -1 where that is more than MOST_BYTES. */
static int64_t span_of(const DLTensor *tensor) {
  int64_t last = 0, stride = 1;
  for (int axis = tensor->ndim - 1; axis >= 0; axis--) {
    int64_t extent = tensor->shape[axis], step = tensor->strides ? tensor->strides[axis] : stride;
    if (extent == 0) return 0;
    if (extent < 0 || extent > MOST_BYTES || step < 0 || step > MOST_BYTES) return -1;
    last += (extent - 1) * step;
    stride *= extent;
    if (last > MOST_BYTES || stride > MOST_BYTES) return -1;
  }
  return (last + 1) * ((tensor->dtype.bits * tensor->dtype.lanes + 7) / 8);
}

static void back(input *from, tensors *all, int i) {
  DLTensor *tensor = &all->tensor[i];
  int64_t span = span_of(tensor), shift = rarely(from, 16) ? take(from) : 0;
  if (span < 0 || span + shift > MOST_BYTES || tensor->byte_offset > 0) all->unbacked = 1;
  if (span < 0 || span + shift > MOST_BYTES) span = shift = 0;
  if (rarely(from, 24)) return;
  all->blocks[i] = calloc(1, (size_t)(span + shift) + (span + shift == 0));
  tensor->data = (char *)all->blocks[i] + shift;
}

static DLTensor *make_tensor(input *from, tensors *all, const tilec_param *param, const int64_t *dims) {
  int i = all->count++;
  DLTensor *tensor = &all->tensor[i];
  tensor->device.device_type = rarely(from, 24) ? (DLDeviceType)take(from) : kDLCPU;
  tensor->dtype = param->dtype;
  if (rarely(from, 24)) tensor->dtype.code = take(from);
  if (rarely(from, 24)) tensor->dtype.bits = take(from);
  if (rarely(from, 24)) tensor->dtype.lanes = take(from);
  tensor->ndim = param->ndim;
  for (int axis = 0; axis < param->ndim && axis < MOST_AXES; axis++) {
    all->shape[i][axis] = rarely(from, 16) ? odd_value(from) : extent_of(&param->shape[axis], dims);
    all->strides[i][axis] = param->strides ? extent_of(&param->strides[axis], dims) : 1;
  }
  if (!param->strides)
    for (int axis = param->ndim - 2; axis >= 0; axis--)
      all->strides[i][axis] = (int64_t)((uint64_t)all->strides[i][axis + 1] * (uint64_t)all->shape[i][axis + 1]);
  for (int axis = 0; axis < param->ndim && axis < MOST_AXES; axis++)
    if (rarely(from, 24)) all->strides[i][axis] = odd_value(from);
  tensor->shape = rarely(from, 48) ? NULL : all->shape[i];
  tensor->strides = rarely(from, 6) ? NULL : all->strides[i];
  tensor->byte_offset = rarely(from, 24) ? (uint64_t)odd_value(from) : 0;
  if (tensor->shape) back(from, all, i);
  if (rarely(from, 24)) tensor->ndim = (int32_t)odd_value(from);
  return rarely(from, 48) ? NULL : tensor;
}

static tilec_arg make_arg(input *from, tensors *all, const tilec_param *param, const int64_t *dims) {
  tilec_arg arg;
  memset(&arg, 0, sizeof(arg));
  arg.tag = param->tag;
  if (param->tag == TILEC_ARG_TENSOR)
    arg.v.tensor = make_tensor(from, all, param, dims);
  else if (param->tag == TILEC_ARG_FLOAT)
    arg.v.f = 0.5 * take(from); /* what a kernel makes of an odd value is not the door's matter */
  else if (param->dtype.bits < 64 && rarely(from, 8))
    arg.v.i = odd_value(from);
  else
    arg.v.i = param->tag == TILEC_ARG_INT ? dims[0] : 1;
  int32_t tag = rarely(from, 24) ? take(from) % 16 - 4 : arg.tag;
  if (tag != arg.tag) {
    arg.tag = tag;
    arg.v.i = tag == TILEC_ARG_TENSOR ? 0 : take(from);
  }
  return arg;
}

/* ---- execs ---- */

static tilec_status run_nothing(void *pool, int64_t n, int64_t grain, tilec_task task, void *closure) {
  (void)pool, (void)n, (void)grain, (void)task, (void)closure;
  return TILEC_ERR_INTERNAL;
}

static const tilec_variant *some_variant(input *from, const tilec_kernel *kernel) {
  const tilec_library *library = sample_library();
  const tilec_kernel *owner = rarely(from, 4) ? library->kernels[take(from) % library->num_kernels] : kernel;
  const char *variant = (const char *)owner->variants[take(from) % owner->num_variants];
  return (const tilec_variant *)(variant + (rarely(from, 8) ? take(from) : 0));
}

static _Alignas(64) char workspace[1 << 16];

static tilec_exec make_exec(input *from, const tilec_kernel *kernel) {
  tilec_exec exec;
  memset(&exec, 0, sizeof(exec));
  exec.struct_size = rarely(from, 24) ? (uint32_t)take(from) : sizeof(exec);
  exec.flags = rarely(from, 16) ? (uint32_t)take(from) : TILEC_EXEC_SERIAL;
  exec.device.device_type = rarely(from, 24) ? (DLDeviceType)take(from) : kDLCPU;
  exec.device.device_id = rarely(from, 16) ? (int32_t)odd_value(from) : 0;
  exec.workspace = rarely(from, 8) ? NULL : workspace + (rarely(from, 12) ? take(from) % 64 : 0);
  exec.workspace_size = rarely(from, 8) ? take(from) : sizeof(workspace) - 64;
  exec.num_workers = rarely(from, 8) ? (uint32_t)odd_value(from) : 0;
  if (rarely(from, 12)) exec.parallel_for = run_nothing;
  if (rarely(from, 4)) exec.variant = some_variant(from, kernel);
  return exec;
}

static void run_nowhere(tilec_exec *exec) {
  exec->flags &= ~(uint32_t)TILEC_EXEC_SERIAL;
  exec->parallel_for = run_nothing;
  exec->num_workers = 2;
}

/* ---- calls ---- */

static void check_status(tilec_status status) {
  REQUIRE(strcmp(sample_library()->status_name(status), "unknown tilec_status") != 0);
  REQUIRE(status != TILEC_ERR_INTERNAL);
  if (status != TILEC_OK) REQUIRE(sample_last_error()[0] != '\0');
}

static void fuzz_launch(input *from, const tilec_kernel *kernel, const int64_t *dims) {
  static tensors all;
  tilec_arg args[2 * MOST_ARGS];
  size_t count = kernel->num_params;
  memset(&all, 0, sizeof(all));
  for (uint32_t i = 0; i < kernel->num_params; i++) args[i] = make_arg(from, &all, kernel->params[i], dims);
  for (uint32_t i = 0; rarely(from, 4) && i < kernel->num_dims; i++) {
    memset(&args[count], 0, sizeof(tilec_arg));
    args[count].tag = TILEC_ARG_INT;
    args[count++].v.i = rarely(from, 8) ? odd_value(from) : dims[i];
  }
  if (rarely(from, 24)) count = take(from) % (count + 1);
  tilec_exec exec = make_exec(from, kernel);
  if (all.unbacked) run_nowhere(&exec);
  int plain = !all.unbacked && rarely(from, 8);
  tilec_status status = sample_library()->launch(kernel, plain ? NULL : &exec, rarely(from, 48) ? NULL : args, count);
  check_status(status);
  if (status == TILEC_OK || status == TILEC_ERR_PARTIAL) fuzz_accepted++;
  for (int i = 0; i < all.count; i++) free(all.blocks[i]);
}

static void fuzz_questions(input *from, const tilec_kernel *kernel, int64_t *dims) {
  const tilec_library *library = sample_library();
  DLDevice device;
  uint32_t align[MOST_ARGS];
  const tilec_variant *found = NULL;
  size_t bytes = 0;
  char text[512];
  memset(&device, 0, sizeof(device));
  device.device_type = rarely(from, 16) ? (DLDeviceType)take(from) : kDLCPU;
  for (int i = 0; i < MOST_ARGS; i++) align[i] = (uint32_t)odd_value(from);
  for (uint32_t i = 0; i < kernel->num_dims; i++)
    if (rarely(from, 4)) dims[i] = odd_value(from);
  const uint32_t *known = rarely(from, 2) ? align : NULL;
  check_status(library->select(kernel, device, dims, known, &found));
  size_t room = take(from);
  library->explain(kernel, device, dims, known, room ? text : NULL, room);
  REQUIRE(room == 0 || memchr(text, 0, room) != NULL);
  tilec_exec exec = make_exec(from, kernel);
  check_status(library->workspace_size(kernel, rarely(from, 2) ? found : NULL, &exec, dims, &bytes));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  input from = {data, data + size};
  const tilec_library *library = sample_library();
  const tilec_kernel *kernel = library->kernels[take(&from) % library->num_kernels];
  int64_t dims[MOST_ARGS];
  for (int i = 0; i < MOST_ARGS; i++) dims[i] = take(&from) % 32;
  if (take(&from) % 2) memcpy(dims, (const int64_t[]){take(&from) % 80, 16, 8}, 3 * sizeof(int64_t));
  if (rarely(&from, 32)) {
    kernel = (const tilec_kernel *)((const char *)kernel + take(&from) % 64 * 8);
    check_status(library->launch(kernel, NULL, NULL, 0));
    return 0;
  }
  fuzz_launch(&from, kernel, dims);
  fuzz_questions(&from, kernel, dims);
  return 0;
}
