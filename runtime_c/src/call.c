/* One call: everything is checked and sized before the first launch, then the launches run in order. */
#include "internal.h"

#include <stdatomic.h>

/* A call that has passed all checks. */
typedef struct prepared_call {
  const variant_record* variant;
  call_frame frame;
  void* slices[MAX_SLICES];
  int64_t blocks[MAX_LAUNCHES];
  uint32_t workers;
  char* scratch;
} prepared_call;

/* ---- preparation ---- */

static tilec_status count_blocks(const kernel_record* kernel, const variant_record* variant,
                                 const tilec_value* params, const int64_t* dims, int64_t* blocks) {
  int64_t grids[3 * MAX_LAUNCHES];
  tilec_status status = eval_grids(kernel, variant, params, dims, grids);
  if (UNLIKELY(status != TILEC_OK)) return status;
  for (uint32_t i = 0; i < variant->info.num_launches; i++)
    blocks[i] = grids[3 * i] * grids[3 * i + 1] * grids[3 * i + 2];
  return TILEC_OK;
}

static tilec_status place_scratch(const tilec_exec* exec, uint64_t slices, prepared_call* call) {
  call->workers = workers_of(exec);
  if (uses_callers_threads(exec)) {
    call->scratch = (char*)((uintptr_t)exec->workspace + slices);
    return TILEC_OK;
  }
  return scratch_for(call->variant->scratch_bytes, call->workers, (void**)&call->scratch);
}

static tilec_status prepare(const kernel_record* kernel, const tilec_exec* exec, const tilec_value* params,
                            const int64_t* dims, prepared_call* call) {
  workspace_layout layout;
  const variant_record* variant = call->variant;
  tilec_status status = count_blocks(kernel, variant, params, dims, call->blocks);
  if (UNLIKELY(status != TILEC_OK)) return status;
  status = measure(kernel, variant, exec, dims, &layout);
  if (UNLIKELY(status != TILEC_OK)) return status;
  status = place_slices(kernel, variant, exec, &layout, call->slices);
  if (UNLIKELY(status != TILEC_OK)) return status;
  call->frame = (call_frame){.params = params, .dims = dims, .slices = call->slices};
  return place_scratch(exec, layout.slices, call);
}

/* ---- running ---- */

typedef struct launch_task {
  const prepared_call* call;
  entry_fn entry;
  int64_t blocks;
  _Atomic int64_t done; /* blocks; counted under a caller's parallel_for alone */
  check_place failed;
} launch_task;

static void run_blocks(void* closure, uint32_t worker, int64_t begin, int64_t end) {
  launch_task* task = closure;
  const prepared_call* call = task->call;
  char* scratch = call->scratch ? call->scratch + worker * call->variant->scratch_bytes : NULL;
  check_place* outer = CALLS_RUNTIME ? task_enter(&task->failed) : NULL;
  call->variant->invoke(task->entry, &call->frame, scratch, begin, end);
  if (CALLS_RUNTIME) task_leave(outer);
}

/* A caller's parallel_for is not trusted with worker numbers, with ranges or with running everything. */
static void run_blocks_checked(void* closure, uint32_t worker, int64_t begin, int64_t end) {
  launch_task* task = closure;
  if (worker >= task->call->workers || begin < 0 || begin >= end || end > task->blocks) return;
  run_blocks(closure, worker, begin, end);
  atomic_fetch_add_explicit(&task->done, end - begin, memory_order_relaxed);
}

/* Several pieces per worker even out blocks of different cost; one atomic addition each is all they cost. */
static int64_t piece_of(int64_t blocks, uint32_t workers) {
  enum { PIECES_PER_WORKER = 8 };
  return int_max(1, blocks / ((int64_t)workers * PIECES_PER_WORKER));
}

static tilec_status run_on_callers_threads(const kernel_record* kernel, const tilec_exec* exec,
                                           launch_task* task, int64_t blocks) {
  tilec_status status =
      exec->parallel_for(exec->pool, blocks, piece_of(blocks, exec->num_workers), run_blocks_checked, task);
  if (status != TILEC_OK)
    return fail(TILEC_ERR_PARTIAL, "%s: the caller's parallel_for returned %d", kernel->info.name, status);
  int64_t done = atomic_load(&task->done);
  if (done == blocks) return TILEC_OK;
  return fail(TILEC_ERR_PARTIAL,
              "%s: the caller's parallel_for ran %lld of %lld blocks with worker numbers below %u",
              kernel->info.name, (long long)done, (long long)blocks, exec->num_workers);
}

static tilec_status check_outcome(const kernel_record* kernel, launch_task* task) {
  const char* failed = atomic_load_explicit(&task->failed, memory_order_relaxed);
  if (LIKELY(!failed)) return TILEC_OK;
  return fail(TILEC_ERR_ASSERT, "%s: %s", kernel->info.name, failed);
}

static tilec_status run_launch(const kernel_record* kernel, const tilec_exec* exec, const prepared_call* call,
                               uint32_t launch) {
  int64_t blocks = call->blocks[launch];
  launch_task task = {.call = call, .entry = call->variant->entries[launch], .blocks = blocks};
  if (blocks == 0) return TILEC_OK;
  if (uses_callers_threads(exec)) {
    tilec_status status = run_on_callers_threads(kernel, exec, &task, blocks);
    return status == TILEC_OK ? check_outcome(kernel, &task) : status;
  }
  uint32_t workers = (uint32_t)int_min(call->workers, blocks);
  if (workers == 1)
    run_blocks(&task, 0, 0, blocks);
  else
    paced_run((const void*)task.entry, workers, blocks, piece_of(blocks, workers), run_blocks, &task);
  return check_outcome(kernel, &task);
}

static APART tilec_status check_asked(const kernel_record* kernel, const tilec_variant* asked,
                                     const dispatch_query* query, const variant_record** out) {
  tilec_status status = own_variant(kernel, asked, out);
  if (status != TILEC_OK) return status;
  status = check_archs(kernel->info.name, query->archs);
  if (status != TILEC_OK) return status;
  if (!arch_usable(query->archs, (*out)->arch)) {
    return fail(TILEC_ERR_NO_ARCH, "%s: exec->variant is for %s, which this %s may not run",
                kernel->info.name, (*out)->info.arch, device_word(query->archs));
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

static APART tilec_status cpu_run(const kernel_record* kernel, const variant_record* variant,
                            const tilec_exec* exec, const tilec_value* params, const int64_t* dims) {
  prepared_call call;
  int64_t room[MAX_DIMS];
  call.variant = variant;
  dims = launch_dims(kernel, variant, exec, dims, room);
  tilec_status status = prepare(kernel, exec, params, dims, &call);
  if (UNLIKELY(status != TILEC_OK)) return status;
  if (UNLIKELY(log_enabled()))
    log_line(TILEC_LOG_DEBUG, "%s: variant %u (%s), %u workers", kernel->info.name, call.variant->info.id,
             call.variant->info.arch, call.workers);
  for (uint32_t i = 0; i < call.variant->info.num_launches; i++) {
    status = run_launch(kernel, exec, &call, i);
    if (UNLIKELY(status != TILEC_OK)) return status;
  }
  return TILEC_OK;
}

INLINE tilec_status call_checked(const kernel_record* kernel, const tilec_exec* exec,
                                const tilec_value* params, const int64_t* dims) {
  const variant_record* variant;
  dispatch_query query = {.dims = dims, .params = params};
  tilec_status status = archs_of(exec->device, &query.archs);
  if (UNLIKELY(status != TILEC_OK)) return status;
  status = choose_variant(kernel, exec->variant, &query, &variant);
  if (UNLIKELY(status != TILEC_OK)) return status;
  if (is_cuda(exec->device)) return cuda_run(kernel, variant, query.archs, exec, params, dims);
  return cpu_run(kernel, variant, exec, params, dims);
}

LOCAL tilec_status call_kernel(const kernel_record* kernel, const tilec_exec* exec, const tilec_value* params,
                               const int64_t* dims) {
  tilec_status status = check_exec(&exec);
  if (UNLIKELY(status != TILEC_OK)) return status;
  status = check_dims(kernel, dims);
  if (UNLIKELY(status != TILEC_OK)) return status;
  status = check_pointers(kernel, exec->device, params, dims);
  if (UNLIKELY(status != TILEC_OK)) return status;
  return call_checked(kernel, exec, params, dims);
}

/* ---- workspace_size ---- */

LOCAL tilec_status call_workspace_size(const kernel_record* kernel, const tilec_variant* variant,
                                       const tilec_exec* exec, const int64_t* dims, size_t* out) {
  const variant_record* chosen;
  workspace_layout layout;
  int64_t room[MAX_DIMS];
  dispatch_query query = {.dims = dims};
  tilec_status status = check_exec(&exec);
  if (status != TILEC_OK) return status;
  status = check_dims(kernel, dims);
  if (status != TILEC_OK) return status;
  status = archs_of(exec->device, &query.archs);
  if (status != TILEC_OK) return status;
  status = choose_variant(kernel, variant ? variant : exec->variant, &query, &chosen);
  if (status != TILEC_OK) return status;
  status = measure(kernel, chosen, exec, launch_dims(kernel, chosen, exec, dims, room), &layout);
  if (status == TILEC_OK) *out = (size_t)layout.total;
  return status;
}
