/* tilec_exec: how one call runs. */
#include "internal.h"

static const tilec_exec default_exec = {.struct_size = sizeof(tilec_exec), .device = {.device_type = kDLCPU}};

/* Always false in a library without CUDA images, so that the compiler leaves that part of the runtime out. */
INLINE bool is_cuda(DLDevice device) { return NUM_CUDA_ARCHS > 0 && device.device_type == kDLCUDA; }

INLINE tilec_status archs_of(DLDevice device, const arch_list** out) {
  if (is_cuda(device)) return cuda_archs(device.device_id, out);
  *out = &settings_get()->cpu_archs;
  return TILEC_OK;
}

/* Fields that came after the first version are looked at through TILEC_FIELD_PRESENT alone. */
enum { FIRST_EXEC_SIZE = offsetof(tilec_exec, reserved0) + sizeof(uint32_t) };

static APART tilec_status check_exec_fields(const tilec_exec* exec) {
  const char* name = this_library.info.name;
  if (exec->struct_size < FIRST_EXEC_SIZE) {
    return fail(TILEC_ERR_ABI, "exec->struct_size is %u, %s needs %d; set it to sizeof(tilec_exec)",
                exec->struct_size, name, FIRST_EXEC_SIZE);
  }
  if (exec->flags & ~TILEC_EXEC_SERIAL) {
    return fail(TILEC_ERR_ABI, "exec->flags = 0x%x has bits that %s does not know", exec->flags, name);
  }
  if (exec->device.device_type != kDLCPU && !is_cuda(exec->device)) {
    return fail(TILEC_ERR_NO_ARCH, "%s has no code for device type %d", name, (int)exec->device.device_type);
  }
  if (is_cuda(exec->device)) return TILEC_OK;
  if (exec->num_workers > MAX_WORKERS) {
    return fail(TILEC_ERR_ARGUMENT, "exec->num_workers = %u is above %d", exec->num_workers, MAX_WORKERS);
  }
  if (exec->parallel_for && exec->num_workers == 0) {
    return fail(TILEC_ERR_ARGUMENT,
                "exec->parallel_for needs exec->num_workers, the number of worker numbers it uses");
  }
  return TILEC_OK;
}

/* Whether an exec needs no closer look. */
static bool is_plain(const tilec_exec* exec) {
  if (exec->struct_size < FIRST_EXEC_SIZE || (exec->flags & ~TILEC_EXEC_SERIAL)) return false;
  if (is_cuda(exec->device)) return true;
  return exec->device.device_type == kDLCPU && !exec->parallel_for && exec->num_workers <= MAX_WORKERS;
}

INLINE tilec_status check_exec(const tilec_exec** exec) {
  if (*exec) return LIKELY(is_plain(*exec)) ? TILEC_OK : check_exec_fields(*exec);
  *exec = &default_exec;
  return TILEC_OK;
}

LOCAL bool uses_callers_threads(const tilec_exec* exec) {
  if (is_cuda(exec->device)) return false;
  return exec->parallel_for && !(exec->flags & TILEC_EXEC_SERIAL) && exec->num_workers > 1;
}

LOCAL uint32_t most_workers(const tilec_exec* exec) {
  if (uses_callers_threads(exec)) return exec->num_workers;
  if ((exec->flags & TILEC_EXEC_SERIAL) || exec->num_workers == 1) return 1;
  uint32_t most = threads_default();
  return exec->num_workers && exec->num_workers < most ? exec->num_workers : most;
}

LOCAL uint32_t workers_of(const tilec_exec* exec) {
  return !uses_callers_threads(exec) && threads_busy() ? 1 : most_workers(exec);
}
