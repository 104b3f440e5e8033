/* When the driver of a family is opened, and what calls are told where it cannot be used. */
#include "devices/driver.h"

#include <stdarg.h>
#include <stdio.h>

#include "records.h"
#include "status.h"
#include "threads/threads.h"

LOCAL tilec_status driver_open(device_driver* driver, void (*work)(void)) {
  const char* name = this_library.info.name;
  if (UNLIKELY(driver->forked))
    return fail(TILEC_ERR_DEVICE, "%s: %s was in use when this process was forked; a child cannot use it",
                name, driver->label);
  if (LIKELY(atomic_load_explicit(&driver->ready, memory_order_acquire))) return TILEC_OK;
  threads_start(); /* registers what happens after a fork */
  system_run_once(&driver->once, work);
  if (driver->status == TILEC_OK) return TILEC_OK;
  return fail(driver->status, "%s: %s", name, driver->reason);
}

LOCAL void driver_make_ready(device_driver* driver, void (*open_library)(void)) {
  atomic_store(&driver->started, true);
  open_library();
  atomic_store_explicit(&driver->ready, driver->status == TILEC_OK, memory_order_release);
}

LOCAL void driver_refuse(device_driver* driver, tilec_status status, const char* format, ...) {
  va_list values;
  va_start(values, format);
  driver->status = status;
  vsnprintf(driver->reason, sizeof(driver->reason), format, values);
  va_end(values);
}

LOCAL bool driver_after_fork(device_driver* driver) {
  return driver->forked = driver->forked || atomic_load(&driver->started);
}
