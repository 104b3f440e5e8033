/* libamdhip64, opened at the first call for an AMD GPU: a library needs no ROCm to be loaded. */
#include "devices/hip/hip.h"

#include <stdatomic.h>
#include <stdio.h>

#include "status.h"
#include "system/system.h"
#include "threads/threads.h"

static struct {
  system_once once;
  system_mutex mutex;
  atomic_bool started; /* HIP may hold threads and locks of this process */
  atomic_bool ready;
  bool forked; /* since then */
  tilec_status status;
  int devices;
  char reason[256];
} hip_state = {.once = SYSTEM_ONCE, .mutex = SYSTEM_MUTEX};

LOCAL void hip_lock(void) { system_lock(&hip_state.mutex); }
LOCAL void hip_unlock(void) { system_unlock(&hip_state.mutex); }
LOCAL int hip_device_count(void) { return hip_state.devices; }
LOCAL void hip_after_fork(void) { hip_state.forked = hip_state.forked || atomic_load(&hip_state.started); }

static const char* hip_error_name(hipError result) {
  return hip.error_name ? hip.error_name(result) : "an error of HIP";
}

LOCAL tilec_status hip_fail(tilec_status status, const char* name, const char* action, hipError result) {
  return fail(status, "%s: %s failed: %s (%d)", name, action, hip_error_name(result), result);
}

static void hip_refuse(tilec_status status, const char* what, const char* why) {
  hip_state.status = status;
  snprintf(hip_state.reason, sizeof(hip_state.reason), "%s: %s", what, why);
}

static bool hip_refuse_result(const char* action, hipError result) {
  if (result == HIP_OK) return false;
  hip_state.status = TILEC_ERR_DRIVER;
  snprintf(hip_state.reason, sizeof(hip_state.reason), "%s failed: %s (%d)", action, hip_error_name(result),
           result);
  return true;
}

/* The newest version that this machine has. */
static void* hip_library(void) {
  static const char* const names[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"};
  char why[200];
  void* handle = NULL;
  for (size_t i = 0; !handle && i < sizeof(names) / sizeof(*names); i++)
    handle = system_open(names[i], why, sizeof(why));
  return handle;
}

/* The first function that HIP lacks; NULL if it has them all. */
static const char* hip_find_functions(void* handle) {
#define FIND(member, symbol, parameters)                 \
  *(void**)&hip.member = system_symbol(handle, #symbol); \
  if (!hip.member) return #symbol;
  HIP_FUNCTIONS(FIND)
#undef FIND
  *(void**)&hip.error_name = system_symbol(handle, "hipGetErrorName");
  for (size_t i = 0; !hip.properties && i < sizeof(hip_layouts) / sizeof(*hip_layouts); i++) {
    hip.layout = &hip_layouts[i];
    *(void**)&hip.properties = system_symbol(handle, hip.layout->symbol);
  }
  return hip.properties ? NULL : hip.layout->symbol;
}

static void hip_open_library(void) {
  atomic_store(&hip_state.started, true);
  void* handle = hip_library();
  if (!handle) {
    hip_refuse(TILEC_ERR_NO_DRIVER, "no ROCm", "libamdhip64.so.7, .6 and .5 cannot be opened");
    return;
  }
  const char* missing = hip_find_functions(handle);
  if (missing) {
    hip_refuse(TILEC_ERR_DRIVER_TOO_OLD, "this ROCm is too old, it lacks", missing);
    return;
  }
  if (hip_refuse_result("hipInit", hip.init(0))) return;
  hip_refuse_result("hipGetDeviceCount", hip.device_count(&hip_state.devices));
}

static void hip_open_once(void) {
  hip_open_library();
  atomic_store_explicit(&hip_state.ready, hip_state.status == TILEC_OK, memory_order_release);
}

LOCAL tilec_status hip_open(void) {
  const char* name = this_library.info.name;
  if (UNLIKELY(hip_state.forked))
    return fail(TILEC_ERR_DEVICE, "%s: HIP was in use when this process was forked; a child cannot use it",
                name);
  if (LIKELY(atomic_load_explicit(&hip_state.ready, memory_order_acquire))) return TILEC_OK;
  threads_start(); /* registers what happens after a fork */
  system_run_once(&hip_state.once, hip_open_once);
  if (hip_state.status == TILEC_OK) return TILEC_OK;
  return fail(hip_state.status, "%s: %s", name, hip_state.reason);
}
