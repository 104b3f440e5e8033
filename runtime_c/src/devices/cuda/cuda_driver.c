/* libcuda.so.1, or nvcuda.dll, opened at the first CUDA call: a library needs no driver to be loaded or to
 * serve CPU calls.
 */
#include "devices/cuda/cuda.h"

#include "status.h"
#include "system/system.h"

static device_driver cuda_driver = DEVICE_DRIVER("CUDA");
static int cuda_version;

LOCAL void cuda_lock(void) { system_lock(&cuda_driver.mutex); }
LOCAL void cuda_unlock(void) { system_unlock(&cuda_driver.mutex); }
LOCAL int cuda_driver_version(void) { return cuda_version; }

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

static bool refuse_result(const char* action, CUresult result) {
  const char *code, *text;
  if (result == CUDA_OK) return false;
  describe_result(result, &code, &text);
  driver_refuse(&cuda_driver, TILEC_ERR_DRIVER, "%s failed: %s (%d): %s", action, code, result, text);
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
  char why[200];
  void* handle = system_open(SYSTEM_CUDA_DRIVER, why, sizeof(why));
  if (!handle) return driver_refuse(&cuda_driver, TILEC_ERR_NO_DRIVER, "no CUDA driver: %s", why);
  const char* missing = find_functions(handle);
  if (missing) {
    driver_refuse(&cuda_driver, TILEC_ERR_DRIVER_TOO_OLD, "the CUDA driver is older than 12.0, it lacks: %s",
                  missing);
    return;
  }
  if (refuse_result("cuInit", cuda.init(0))) return;
  if (refuse_result("cuDriverGetVersion", cuda.driver_version(&cuda_version))) return;
  refuse_result("cuDeviceGetCount", cuda.device_count(&cuda_driver.num_devices));
}

LOCAL void cuda_open(void) { driver_make_ready(&cuda_driver, open_driver); }
