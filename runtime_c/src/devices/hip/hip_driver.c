/* libamdhip64, opened at the first call for an AMD GPU: a library needs no ROCm to be loaded. */
#include "devices/hip/hip.h"

#include "status.h"
#include "system/system.h"

static device_driver hip_driver = DEVICE_DRIVER("HIP");

LOCAL void hip_lock(void) { system_lock(&hip_driver.mutex); }
LOCAL void hip_unlock(void) { system_unlock(&hip_driver.mutex); }

static const char* hip_error_name(hipError result) {
  return hip.error_name ? hip.error_name(result) : "an error of HIP";
}

LOCAL tilec_status hip_fail(tilec_status status, const char* name, const char* action, hipError result) {
  return fail(status, "%s: %s failed: %s (%d)", name, action, hip_error_name(result), result);
}

static bool hip_refuse_result(const char* action, hipError result) {
  if (result == HIP_OK) return false;
  driver_refuse(&hip_driver, TILEC_ERR_DRIVER, "%s failed: %s (%d)", action, hip_error_name(result), result);
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
  void* handle = hip_library();
  if (!handle) {
    driver_refuse(&hip_driver, TILEC_ERR_NO_DRIVER, "no ROCm: libamdhip64.so.7, .6 and .5 cannot be opened");
    return;
  }
  const char* missing = hip_find_functions(handle);
  if (missing) {
    driver_refuse(&hip_driver, TILEC_ERR_DRIVER_TOO_OLD, "this ROCm is too old, it lacks: %s", missing);
    return;
  }
  if (hip_refuse_result("hipInit", hip.init(0))) return;
  hip_refuse_result("hipGetDeviceCount", hip.device_count(&hip_driver.num_devices));
}

LOCAL void hip_open(void) { driver_make_ready(&hip_driver, hip_open_library); }
