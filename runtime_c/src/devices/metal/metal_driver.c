/* Metal through the Objective-C run time, opened at the first call for an Apple GPU. */
#include "devices/metal/metal.h"

#include <stdatomic.h>
#include <stdio.h>

#include "status.h"
#include "system/system.h"
#include "threads/threads.h"

static struct {
  system_once once;
  system_mutex mutex;
  atomic_bool started; /* Metal may hold threads and locks of this process */
  atomic_bool ready;
  bool forked; /* since then */
  tilec_status status;
  char reason[256];
} metal_state = {.once = SYSTEM_ONCE, .mutex = SYSTEM_MUTEX};

LOCAL void metal_lock(void) { system_lock(&metal_state.mutex); }
LOCAL void metal_unlock(void) { system_unlock(&metal_state.mutex); }
LOCAL void metal_after_fork(void) {
  metal_state.forked = metal_state.forked || atomic_load(&metal_state.started);
}

/* The words of an NSError. */
static const char* metal_words(metal_id error) {
  metal_id text = error ? METAL_ASK(metal_id)(error, metal.selectors.description) : NULL;
  const char* words = text ? METAL_ASK(const char*)(text, metal.selectors.text) : NULL;
  return words ? words : "Metal does not say why";
}

LOCAL tilec_status metal_fail(tilec_status status, const char* name, const char* action, metal_id error) {
  return fail(status, "%s: %s failed: %s", name, action, metal_words(error));
}

static void metal_refuse(tilec_status status, const char* what, const char* why) {
  metal_state.status = status;
  snprintf(metal_state.reason, sizeof(metal_state.reason), "%s: %s", what, why);
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
  atomic_store(&metal_state.started, true);
  void* objc = system_open(METAL_OBJC, why, sizeof(why));
  void* framework = objc ? system_open(METAL_FRAMEWORK, why, sizeof(why)) : NULL;
  if (!framework) {
    metal_refuse(TILEC_ERR_NO_DRIVER, "no Metal", why);
    return;
  }
  const char* missing = metal_find_functions(objc, framework);
  if (missing) {
    metal_refuse(TILEC_ERR_DRIVER_TOO_OLD, "this Metal is too old, it lacks", missing);
    return;
  }
#define X(member, name) metal.selectors.member = metal.selector(name);
  METAL_SELECTORS(X)
#undef X
}

static void metal_open_once(void) {
  metal_open_libraries();
  atomic_store_explicit(&metal_state.ready, metal_state.status == TILEC_OK, memory_order_release);
}

LOCAL tilec_status metal_open(void) {
  const char* name = this_library.info.name;
  if (UNLIKELY(metal_state.forked))
    return fail(TILEC_ERR_DEVICE, "%s: Metal was in use when this process was forked; a child cannot use it",
                name);
  if (LIKELY(atomic_load_explicit(&metal_state.ready, memory_order_acquire))) return TILEC_OK;
  threads_start(); /* registers what happens after a fork */
  system_run_once(&metal_state.once, metal_open_once);
  if (metal_state.status == TILEC_OK) return TILEC_OK;
  return fail(metal_state.status, "%s: %s", name, metal_state.reason);
}
