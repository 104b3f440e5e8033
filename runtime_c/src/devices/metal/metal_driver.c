/* Metal through the Objective-C run time, opened at the first call for an Apple GPU. */
#include "devices/metal/metal.h"

#include "devices/metal/metal_records.h"
#include "status.h"
#include "system/system.h"

static device_driver metal_driver = DEVICE_DRIVER("Metal");

LOCAL void metal_lock(void) { system_lock(&metal_driver.mutex); }
LOCAL void metal_unlock(void) { system_unlock(&metal_driver.mutex); }

/* The words of an NSError. */
static const char* metal_words(metal_id error) {
  metal_id text = error ? METAL_ASK(metal_id)(error, metal.selectors.description) : NULL;
  const char* words = text ? METAL_ASK(const char*)(text, metal.selectors.text) : NULL;
  return words ? words : "Metal does not say why";
}

LOCAL tilec_status metal_fail(tilec_status status, const char* name, const char* action, metal_id error) {
  return fail(status, "%s: %s failed: %s", name, action, metal_words(error));
}

/* The first function that is missing; NULL if none is. */
static const char* metal_find_functions(void* objc, void* framework) {
#define FIND(member, symbol, result, parameters)         \
  *(void**)&metal.member = system_symbol(objc, #symbol); \
  if (!metal.member) return #symbol;
  METAL_FUNCTIONS(FIND)
#undef FIND
  *(void**)&metal.send = system_symbol(objc, "objc_msgSend");
  *(void**)&metal.default_device = system_symbol(framework, "MTLCreateSystemDefaultDevice");
  if (!metal.send) return "objc_msgSend";
  return metal.default_device ? NULL : "MTLCreateSystemDefaultDevice";
}

static void metal_open_libraries(void) {
  char why[200];
  void* objc = system_open(METAL_OBJC, why, sizeof(why));
  void* framework = objc ? system_open(METAL_FRAMEWORK, why, sizeof(why)) : NULL;
  if (!framework) {
    driver_refuse(&metal_driver, TILEC_ERR_NO_DRIVER, "no Metal: %s", why);
    return;
  }
  const char* missing = metal_find_functions(objc, framework);
  if (missing) {
    driver_refuse(&metal_driver, TILEC_ERR_DRIVER_TOO_OLD, "this Metal is too old, it lacks: %s", missing);
    return;
  }
#define X(member, name) metal.selectors.member = metal.selector(name);
  METAL_SELECTORS(X)
#undef X
  metal_driver.num_devices = MAX_METAL_DEVICES;
}

LOCAL void metal_open(void) { driver_make_ready(&metal_driver, metal_open_libraries); }
