/* libcuda.so.1, or nvcuda.dll, opened at the first CUDA call: a library needs no driver to be loaded or to
 * serve CPU calls.
 */
#include "devices/cuda/cuda.h"

#include <stdatomic.h>
#include <stdio.h>

#include "status.h"
#include "system/system.h"
#include "threads/threads.h"

static struct {
  system_once once;
  system_mutex mutex;
  atomic_bool started; /* the driver may hold threads and locks of this process */
  atomic_bool ready;
  bool forked; /* since then */
  tilec_status status;
  int version, devices;
  char reason[256];
} driver = {.once = SYSTEM_ONCE, .mutex = SYSTEM_MUTEX};

LOCAL void cuda_lock(void) { system_lock(&driver.mutex); }
LOCAL void cuda_unlock(void) { system_unlock(&driver.mutex); }
LOCAL int cuda_driver_version(void) { return driver.version; }
LOCAL int cuda_device_count(void) { return driver.devices; }

LOCAL void cuda_after_fork(void) {
  driver.forked = driver.forked || atomic_load(&driver.started);
  if (driver.forked) cuda_forget_devices();
}

static void describe_result(CUresult result, const char** name, const char** text) {
  *name = *text = NULL;
  if (cuda.error_name) cuda.error_name(result, name);
  if (cuda.error_string) cuda.error_string(result, text);
  if (!*name) *name = "an unknown CUresult";
  if (!*text) *text = "no text";
}

LOCAL tilec_status cuda_fail(tilec_status status, const char* name, const char* action, CUresult result) {
  const char *code, *text;
  describe_result(result, &code, &text);
  return fail(status, "%s: %s failed: %s (%d): %s", name, action, code, result, text);
}

static void refuse(tilec_status status, const char* what, const char* why) {
  driver.status = status;
  snprintf(driver.reason, sizeof(driver.reason), "%s: %s", what, why);
}

static bool refuse_result(const char* action, CUresult result) {
  const char *code, *text;
  if (result == CUDA_OK) return false;
  describe_result(result, &code, &text);
  driver.status = TILEC_ERR_DRIVER;
  snprintf(driver.reason, sizeof(driver.reason), "%s failed: %s (%d): %s", action, code, result, text);
  return true;
}

/* The first function that the driver lacks; NULL if it has them all. */
static const char* find_functions(void* handle) {
#define FIND(member, symbol, parameters)                  \
  *(void**)&cuda.member = system_symbol(handle, #symbol); \
  if (!cuda.member) return #symbol;
  CUDA_FUNCTIONS(FIND)
#undef FIND
  *(void**)&cuda.function_load = system_symbol(handle, "cuFuncLoad");
  return NULL;
}

static void open_driver(void) {
  atomic_store(&driver.started, true);
  char why[200];
  void* handle = system_open(SYSTEM_CUDA_DRIVER, why, sizeof(why));
  if (!handle) return refuse(TILEC_ERR_NO_DRIVER, "no CUDA driver", why);
  const char* missing = find_functions(handle);
  if (missing) {
    refuse(TILEC_ERR_DRIVER_TOO_OLD, "the CUDA driver is older than 12.0, it lacks", missing);
    return;
  }
  if (refuse_result("cuInit", cuda.init(0))) return;
  if (refuse_result("cuDriverGetVersion", cuda.driver_version(&driver.version))) return;
  refuse_result("cuDeviceGetCount", cuda.device_count(&driver.devices));
}

static void open_once(void) {
  open_driver();
  atomic_store_explicit(&driver.ready, driver.status == TILEC_OK, memory_order_release);
}

LOCAL tilec_status cuda_open(void) {
  const char* name = this_library.info.name;
  if (UNLIKELY(driver.forked)) {
    return fail(TILEC_ERR_DEVICE, "%s: CUDA was in use when this process was forked; a child cannot use it",
                name);
  }
  if (LIKELY(atomic_load_explicit(&driver.ready, memory_order_acquire))) return TILEC_OK;
  threads_start(); /* registers what happens after a fork */
  system_run_once(&driver.once, open_once);
  if (driver.status == TILEC_OK) return TILEC_OK;
  return fail(driver.status, "%s: %s", name, driver.reason);
}
