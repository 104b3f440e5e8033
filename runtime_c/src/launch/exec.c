/* tilec_exec: how one call runs. */
#include "launch/exec.h"

#include "devices/family.h"
#include "records.h"
#include "status.h"
#include "threads/threads.h"

static const tilec_exec default_exec = {.struct_size = sizeof(tilec_exec), .device = {.device_type = kDLCPU}};

/* Fields that came after the first version are looked at through TILEC_FIELD_PRESENT alone. */
enum { FIRST_EXEC_SIZE = offsetof(tilec_exec, reserved0) + sizeof(uint32_t) };

static COLD tilec_status fail_no_code(DLDevice device) {
  char own[256] = "";
  size_t used = 0;
  for (uint32_t i = 0; i < this_library.num_archs; i++)
    text_append(own, sizeof(own), &used, "%s%s", i ? ", " : "", this_library.archs[i].name);
  return fail(TILEC_ERR_NO_ARCH, "%s has no code for devices of DLPack's type %d; it has some for %s",
              this_library.info.name, (int)device.device_type, own);
}

static APART tilec_status check_exec_fields(const tilec_exec* exec) {
  const char* name = this_library.info.name;
  if (exec->struct_size < FIRST_EXEC_SIZE) {
    return fail(TILEC_ERR_ABI, "exec->struct_size is %u, %s needs %d; set it to sizeof(tilec_exec)",
                exec->struct_size, name, FIRST_EXEC_SIZE);
  }
  if (exec->flags & ~TILEC_EXEC_SERIAL) {
    return fail(TILEC_ERR_ABI, "exec->flags = 0x%x has bits that %s does not know", exec->flags, name);
  }
  const device_family* family = family_of(exec->device);
  if (exec->device.device_type != family->device_type) {
    return fail_no_code(exec->device);
  }
  if (!family->host) return TILEC_OK;
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
  const device_family* family = family_of(exec->device);
  if (!family->host) return true;
  return exec->device.device_type == family->device_type && !exec->parallel_for &&
         exec->num_workers <= MAX_WORKERS;
}

INLINE tilec_status check_exec(const tilec_exec** exec) {
  if (*exec) return LIKELY(is_plain(*exec)) ? TILEC_OK : check_exec_fields(*exec);
  *exec = &default_exec;
  return TILEC_OK;
}

LOCAL bool uses_callers_threads(const tilec_exec* exec) {
  if (!family_of(exec->device)->host) return false;
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
