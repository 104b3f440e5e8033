/* The family of CPUs: which architectures this one may run, and launches on threads of the process.
 * Everything is sized and placed before the first launch, then the launches run in order. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "arith.h"
#include "compiler.h"
#include "devices/family.h"
#include "dispatch/cpu.h"
#include "keep.h"
#include "launch/exec.h"
#include "launch/slices.h"
#include "launch/workspace.h"
#include "records.h"
#include "settings.h"
#include "status.h"
#include "system/system.h"
#include "threads/pace.h"
#include "threads/threads.h"

/* ---- architectures ---- */

static arch_list host_archs;
static system_once host_once = SYSTEM_ONCE;
static atomic_bool host_ready;

/* The features that code of this library needs; 0 where it has none for CPUs. */
static uint64_t wanted_features(void) {
  uint64_t wanted = 0;
  for (uint32_t i = 0; i < this_library.num_archs; i++) {
    if (this_library.archs[i].device_type == kDLCPU) wanted |= this_library.archs[i].needs;
  }
  return wanted;
}

/* The features of the machine that TILEC_CPU names, none where this one lacks some. */
static uint64_t limited_features(const char* asked, uint64_t wanted) {
  uint64_t named = cpu_named(asked), missing = named & ~cpu_detect(wanted | named);
  const char* why = !named    ? "names no CPU target of this architecture"
                    : missing ? "needs what this CPU lacks"
                              : "has less than any of its code needs";
  size_t used = 0, size = sizeof(host_archs.reason);
  text_append(host_archs.reason, size, &used, "TILEC_CPU=%s %s; the library is for ", asked, why);
  text_archs(host_archs.reason, size, &used, kDLCPU);
  return missing ? 0 : named;
}

static void find_host_archs(const settings* now) {
  arch_list* list = &host_archs;
  list->device_type = kDLCPU;
  uint64_t wanted = wanted_features();
  size_t used = 0, size = sizeof(list->reason);
  text_append(list->reason, size, &used, "%s",
              wanted ? "this CPU lacks features that all code in the library needs, which is for "
                     : "the library has no code for CPUs, and the tensors are in host memory");
  if (wanted) text_archs(list->reason, size, &used, kDLCPU);
  bool limited = now->cpu && wanted;
  uint64_t features = limited ? limited_features(now->cpu, wanted) : cpu_detect(wanted);
  for (uint32_t i = 0; i < this_library.num_archs; i++) {
    const arch_record* arch = &this_library.archs[i];
    if (arch->device_type == kDLCPU && !(arch->needs & ~features)) list->archs[list->count++] = (uint8_t)i;
  }
  if (list->count == 0) list->status = TILEC_ERR_NO_ARCH;
  list->forced = now->num_forced > 0;
}

static void look_at_host(void) {
  find_host_archs(settings_get());
  threads_start();
  atomic_store_explicit(&host_ready, true, memory_order_release);
}

static const arch_list* host_archs_get(void) {
  if (UNLIKELY(!atomic_load_explicit(&host_ready, memory_order_acquire)))
    system_run_once(&host_once, look_at_host);
  return &host_archs;
}

/* A CPU is number 0, whatever the number. */
static tilec_status cpu_archs(int32_t device, const arch_list** out) {
  (void)device;
  *out = host_archs_get();
  return TILEC_OK;
}

static int64_t cpu_units(const tilec_exec* exec) { return most_workers(exec); }

/* ---- preload ---- */

static uint64_t usable_scratch(const kernel_record* kernel, const arch_list* archs) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < kernel->info.num_variants; i++) {
    const variant_record* variant = &kernel->variants[i];
    if (arch_usable(archs, variant->arch) && variant->scratch_bytes > bytes) bytes = variant->scratch_bytes;
  }
  return bytes;
}

static tilec_status cpu_preload(const kernel_record* only, int32_t device) {
  (void)device;
  const arch_list* archs = host_archs_get();
  uint64_t scratch = 0;
  void* memory;
  tilec_status status = check_archs(this_library.info.name, archs);
  if (status != TILEC_OK) return status;
  threads_rescan();
  for (size_t i = 0; i < this_library.info.num_kernels; i++) {
    const kernel_record* each = &this_library.kernels[i];
    uint64_t bytes = only && only != each ? 0 : usable_scratch(each, archs);
    if (bytes > scratch) scratch = bytes;
  }
  return scratch_for(scratch, threads_default(), &memory);
}

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

/* On the library's own threads a call without a workspace has one of its own, in front of the workers'
 * scratch, which it then needs room behind. */
static tilec_status place_own_workspace(const kernel_record* kernel, prepared_call* call,
                                        const workspace_layout* layout) {
  uint64_t scratch, total, pitch = scratch_pitch(call->variant->scratch_bytes);
  bool overflow = __builtin_mul_overflow(pitch, (uint64_t)call->workers, &scratch) ||
                  __builtin_add_overflow(layout->total, scratch, &total);
  char* memory = overflow ? NULL : scratch_reserve(total);
  if (UNLIKELY(!memory))
    return fail(TILEC_ERR_WORKSPACE, "%s: no memory for a workspace of %llu bytes", kernel->info.name,
                (unsigned long long)layout->total);
  for (uint32_t i = 0; i < call->variant->num_slices; i++) call->slices[i] = memory + layout->offsets[i];
  call->scratch = memory + layout->total;
  return TILEC_OK;
}

static tilec_status place_memory(const kernel_record* kernel, const tilec_exec* exec,
                                 const workspace_layout* layout, prepared_call* call) {
  bool callers = uses_callers_threads(exec);
  call->workers = workers_of(exec);
  if (UNLIKELY(layout->total > 0 && !exec->workspace && !callers))
    return place_own_workspace(kernel, call, layout);
  tilec_status status = place_slices(kernel, call->variant, exec, layout, call->slices);
  if (UNLIKELY(status != TILEC_OK)) return status;
  if (!callers) return scratch_for(call->variant->scratch_bytes, call->workers, (void**)&call->scratch);
  call->scratch = (char*)((uintptr_t)exec->workspace + layout->slices);
  return TILEC_OK;
}

static tilec_status prepare(const kernel_record* kernel, const tilec_exec* exec, const tilec_value* params,
                            const int64_t* dims, prepared_call* call) {
  workspace_layout layout;
  const variant_record* variant = call->variant;
  tilec_status status = count_blocks(kernel, variant, params, dims, call->blocks);
  if (UNLIKELY(status != TILEC_OK)) return status;
  status = measure(kernel, variant, exec, dims, &layout);
  if (UNLIKELY(status != TILEC_OK)) return status;
  call->frame = (call_frame){.params = params, .dims = dims, .slices = call->slices};
  return place_memory(kernel, exec, &layout, call);
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
  char* scratch = scratch_of(call->scratch, call->variant->scratch_bytes, worker);
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

static APART tilec_status cpu_run(const kernel_record* kernel, const variant_record* variant,
                                  const arch_list* archs, const tilec_exec* exec, const tilec_value* params,
                                  const int64_t* dims) {
  (void)archs;
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

static const device_family cpu_family = {
    .title = "CPU",
    .word = "CPU",
    .device_type = kDLCPU,
    .host = true,
    .memory_align = CPU_ALIGN,
    .archs = cpu_archs,
    .units = cpu_units,
    .preload = cpu_preload,
    .run = cpu_run,
};
