/* One call: a variant is chosen, and the family of the device runs it. */
#include "launch/call.h"

#include <string.h>

#include "arguments/args.h"
#include "devices/family.h"
#include "dispatch/dispatch.h"
#include "dispatch/explain.h"
#include "dispatch/guards.h"
#include "doors.h"
#include "launch/exec.h"
#include "launch/slices.h"
#include "own.h"
#include "status.h"

static APART tilec_status check_asked(const kernel_record* kernel, const tilec_variant* asked,
                                      const dispatch_query* query, const variant_record** out) {
  tilec_status status = own_variant(kernel, asked, out);
  if (status != TILEC_OK) return status;
  status = check_archs(kernel->info.name, query->archs);
  if (status != TILEC_OK) return status;
  if (!arch_usable(query->archs, (*out)->arch)) {
    return fail(TILEC_ERR_NO_ARCH, "%s: exec->variant is for %s, which this %s may not run",
                kernel->info.name, (*out)->info.arch, device_word(query->archs->device_type));
  }
  const tilec_guard* guard = failing_guard(kernel, *out, query);
  if (!guard) return TILEC_OK;
  char reason[160];
  describe_rejection(kernel, guard, query, reason, sizeof(reason));
  return fail(TILEC_ERR_NO_VARIANT, "%s: exec->variant %u %s", kernel->info.name, (*out)->info.id, reason);
}

static tilec_status choose_variant(const kernel_record* kernel, const tilec_variant* asked,
                                   const dispatch_query* query, const variant_record** out) {
  return LIKELY(!asked) ? dispatch(kernel, query, out) : check_asked(kernel, asked, query, out);
}

INLINE tilec_status call_checked(const kernel_record* kernel, const tilec_exec* exec,
                                 const tilec_value* params, const int64_t* dims) {
  const variant_record* variant;
  dispatch_query query = {.exec = exec, .dims = dims, .params = params};
  const device_family* family = family_of(exec->device);
  tilec_status status = family->archs(exec->device.device_id, &query.archs);
  if (UNLIKELY(status != TILEC_OK)) return status;
  status = choose_variant(kernel, exec->variant, &query, &variant);
  if (UNLIKELY(status != TILEC_OK)) return status;
  return family->run(kernel, variant, query.archs, exec, params, dims);
}

LINKED tilec_status tilec_call_kernel(const kernel_record* kernel, const tilec_exec* exec,
                                      const tilec_value* params, const int64_t* dims) {
  tilec_status status = check_exec(&exec);
  if (UNLIKELY(status != TILEC_OK)) return status;
  status = check_dims(kernel, dims);
  if (UNLIKELY(status != TILEC_OK)) return status;
  status = check_pointers(kernel, exec->device, params, dims);
  if (UNLIKELY(status != TILEC_OK)) return status;
  return call_checked(kernel, exec, params, dims);
}

/* ---- workspace_size ---- */

/* Where tensors begin is the call's to check: this is asked of a variant ahead of it. */
static tilec_status choose_ahead(const kernel_record* kernel, const tilec_variant* asked,
                                 dispatch_query* query, const variant_record** out) {
  uint32_t any[MAX_PARAMS];
  memset(any, 0xff, sizeof(any));
  query->min_align = asked ? any : NULL;
  return choose_variant(kernel, asked, query, out);
}

LINKED tilec_status tilec_call_workspace(const kernel_record* kernel, const tilec_variant* variant,
                                         const tilec_exec* exec, const int64_t* dims, size_t* out) {
  const variant_record* chosen;
  workspace_layout layout;
  int64_t room[MAX_DIMS];
  dispatch_query query = {.dims = dims};
  if (!out) return fail(TILEC_ERR_ARGUMENT, "%s: the result pointer is NULL", kernel->info.name);
  tilec_status status = check_exec(&exec);
  if (status != TILEC_OK) return status;
  query.exec = exec;
  status = check_dims(kernel, dims);
  if (status != TILEC_OK) return status;
  status = family_of(exec->device)->archs(exec->device.device_id, &query.archs);
  if (status != TILEC_OK) return status;
  status = choose_ahead(kernel, variant ? variant : exec->variant, &query, &chosen);
  if (status != TILEC_OK) return status;
  status = measure(kernel, chosen, exec, launch_dims(kernel, chosen, exec, dims, room), &layout);
  if (status == TILEC_OK) *out = (size_t)layout.total;
  return status;
}
