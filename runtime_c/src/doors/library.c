/* The functions behind tilec_library: every pointer a caller hands in is checked before it is believed. */
#include <string.h>

#include "arguments/args.h"
#include "compiler.h"
#include "devices/family.h"
#include "dispatch/dispatch.h"
#include "dispatch/explain.h"
#include "dispatch/guards.h"
#include "doors.h"
#include "launch/call.h"
#include "launch/exec.h"
#include "own.h"
#include "records.h"
#include "status.h"
#include "threads/threads.h"

LINKED tilec_status tilec_check_build(const char* build_id) {
  if (build_id && strcmp(build_id, this_library.info.build_id) == 0) return TILEC_OK;
  return fail(TILEC_ERR_ABI,
              "the header is of build %s, the library %s of build %s; install both from one build",
              build_id ? build_id : "NULL", this_library.info.name, this_library.info.build_id);
}

static tilec_status own_device(DLDevice device) {
  const tilec_exec exec = {.struct_size = sizeof(tilec_exec), .device = device};
  const tilec_exec* checked = &exec;
  return check_exec(&checked);
}

LINKED const tilec_kernel* tilec_library_find(const char* name) {
  size_t low = 0, high = name ? this_library.info.num_kernels : 0;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    int order = strcmp(name, this_library.kernels[middle].info.name);
    if (order == 0) return &this_library.kernels[middle].info;
    if (order < 0)
      high = middle;
    else
      low = middle + 1;
  }
  return NULL;
}

LINKED tilec_status tilec_library_preload(const tilec_kernel* kernel, DLDevice device) {
  const kernel_record* only = NULL;
  tilec_status status = kernel ? own_kernel(kernel, &only) : TILEC_OK;
  if (status != TILEC_OK) return status;
  status = own_device(device);
  if (status != TILEC_OK) return status;
  return family_of(device)->preload(only, device.device_id);
}

/* A query is of a call that says nothing but the device. */
static tilec_status check_query(const tilec_kernel* kernel, dispatch_query* query,
                                const kernel_record** own) {
  tilec_status status = own_kernel(kernel, own);
  if (status != TILEC_OK) return status;
  DLDevice device = query->exec->device;
  status = check_exec(&query->exec);
  if (status != TILEC_OK) return status;
  if (!query->dims && kernel->num_dims) return fail(TILEC_ERR_ARGUMENT, "%s: dims is NULL", kernel->name);
  status = check_dims(*own, query->dims);
  return status == TILEC_OK ? family_of(device)->archs(device.device_id, &query->archs) : status;
}

LINKED tilec_status tilec_library_select(const tilec_kernel* kernel, DLDevice device, const int64_t* dims,
                                         const uint32_t* min_align, const tilec_variant** out) {
  const kernel_record* own;
  const variant_record* found;
  const tilec_exec exec = {.struct_size = sizeof(tilec_exec), .device = device};
  dispatch_query query = {.exec = &exec, .dims = dims, .min_align = min_align};
  if (!out) return fail(TILEC_ERR_ARGUMENT, "%s: out is NULL", this_library.info.name);
  tilec_status status = check_query(kernel, &query, &own);
  if (status != TILEC_OK) return status;
  status = dispatch(own, &query, &found);
  if (status == TILEC_OK) *out = &found->info;
  return status;
}

/* A query that cannot be asked is explained by its error. */
LINKED size_t tilec_library_explain(const tilec_kernel* kernel, DLDevice device, const int64_t* dims,
                                    const uint32_t* min_align, char* out, size_t size) {
  const kernel_record* own;
  const tilec_exec exec = {.struct_size = sizeof(tilec_exec), .device = device};
  dispatch_query query = {.exec = &exec, .dims = dims, .min_align = min_align};
  if (!out) size = 0;
  if (check_query(kernel, &query, &own) == TILEC_OK) return dispatch_explain(own, &query, out, size);
  size_t length = strlen(tilec_last_error());
  if (size) {
    size_t kept = length < size - 1 ? length : size - 1;
    memcpy(out, tilec_last_error(), kept);
    out[kept] = '\0';
  }
  return length;
}

LINKED tilec_status tilec_library_workspace_size(const tilec_kernel* kernel, const tilec_variant* variant,
                                                 const tilec_exec* exec, const int64_t* dims, size_t* out) {
  const kernel_record* own;
  tilec_status status = own_kernel(kernel, &own);
  if (status != TILEC_OK) return status;
  if (!out || (!dims && kernel->num_dims))
    return fail(TILEC_ERR_ARGUMENT, "%s: %s is NULL", kernel->name, out ? "dims" : "out");
  return tilec_call_workspace(own, variant, exec, dims, out);
}

LINKED tilec_status tilec_library_launch(const tilec_kernel* kernel, const tilec_exec* exec,
                                         const tilec_arg* args, size_t num_args) {
  const kernel_record* own;
  tilec_value params[MAX_PARAMS];
  int64_t dims[MAX_DIMS];
  tilec_status status = own_kernel(kernel, &own);
  if (status != TILEC_OK) return status;
  status = check_exec(&exec);
  if (status != TILEC_OK) return status;
  status = unpack_args(own, exec->device, args, num_args, params, dims);
  if (status != TILEC_OK) return status;
  status = check_pointers(own, exec->device, params, dims);
  if (status != TILEC_OK) return status;
  return call_checked(own, exec, params, dims);
}

/* The program's word is the last one: the environment is read first, and threads are looked at. */
LINKED void tilec_library_set_log(tilec_log_fn log, void* user) {
  threads_start();
  set_log(log, user);
}
