/* When the driver of a family is opened and a device of it read, and what calls are told where it cannot be
 * used. */
#include "devices/driver.h"

#include <stdarg.h>
#include <stdio.h>

#include "records.h"
#include "settings.h"
#include "status.h"
#include "threads/threads.h"

static tilec_status driver_open(const device_table* table) {
  device_driver* driver = table->driver;
  const char* name = this_library.info.name;
  if (UNLIKELY(driver->forked))
    return fail(TILEC_ERR_DEVICE, "%s: %s was in use when this process was forked; a child cannot use it",
                name, driver->label);
  if (LIKELY(atomic_load_explicit(&driver->ready, memory_order_acquire))) return TILEC_OK;
  threads_start(); /* registers what happens after a fork */
  system_run_once(&driver->once, table->open);
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

LOCAL arch_list* driver_begin_archs(driver_device* device, uint32_t device_type) {
  device->archs.device_type = device_type;
  device->archs.forced = settings_get()->num_forced > 0;
  return &device->archs;
}

LOCAL void driver_no_code(driver_device* device, const char* format, ...) {
  arch_list* list = &device->archs;
  char what[96];
  size_t used = 0, size = sizeof(list->reason);
  va_list values;
  va_start(values, format);
  vsnprintf(what, sizeof(what), format, values);
  va_end(values);
  list->status = TILEC_ERR_NO_ARCH;
  text_append(list->reason, size, &used, "no code for device %d%s; there is code for ", device->number, what);
  text_archs(list->reason, size, &used, list->device_type);
}

INLINE driver_device* device_at(const device_table* table, int32_t number) {
  return (driver_device*)(table->records + (size_t)number * table->record_size);
}

static COLD tilec_status read_device(const device_table* table, int32_t number, driver_device** out) {
  tilec_status status = driver_open(table);
  if (UNLIKELY(status != TILEC_OK)) return status;
  int among = table->driver->num_devices;
  if (UNLIKELY(number < 0 || number >= among || number >= table->room))
    return fail(TILEC_ERR_DEVICE, "%s: there is no %s %d among %d", this_library.info.name, table->noun,
                number, among);
  driver_device* device = *out = device_at(table, number);
  system_lock(&table->driver->mutex);
  if (!atomic_load(&device->known)) {
    device->number = number;
    status = table->read(device);
    atomic_store_explicit(&device->known, status == TILEC_OK, memory_order_release);
  }
  system_unlock(&table->driver->mutex);
  return status;
}

INLINE tilec_status driver_find(const device_table* table, int32_t number, driver_device** out) {
  bool in_table = (uint32_t)number < (uint32_t)table->room;
  if (UNLIKELY(!in_table || !atomic_load_explicit(&device_at(table, number)->known, memory_order_acquire)))
    return read_device(table, number, out);
  *out = device_at(table, number);
  return TILEC_OK;
}

INLINE tilec_status driver_archs(const device_table* table, int32_t number, const arch_list** out) {
  driver_device* device;
  tilec_status status = driver_find(table, number, &device);
  if (LIKELY(status == TILEC_OK)) *out = &device->archs;
  return status;
}

INLINE driver_device* driver_device_of(const arch_list* archs) {
  return (driver_device*)((char*)archs - offsetof(driver_device, archs));
}

LOCAL void driver_after_fork(const device_table* table) {
  device_driver* driver = table->driver;
  driver->forked = driver->forked || atomic_load(&driver->started);
  if (!driver->forked) return;
  for (int i = 0; i < table->room; i++) atomic_store(&device_at(table, i)->known, false);
}
