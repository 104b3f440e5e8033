/* The devices: which architecture of the library each runs. */
#include "devices/hip/hip.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "devices/hip/hip_records.h"
#include "settings.h"
#include "status.h"

static hip_device hip_devices[MAX_HIP_DEVICES];

/* A code object runs on its own chip alone: "gfx942" of a device that calls itself "gfx942:sramecc+:xnack-".
 */
static bool hip_runs_on(const arch_record* arch, const char* chip) {
  size_t length = strcspn(chip, ":");
  return arch->device_type == kDLROCM && strlen(arch->name) == length && !memcmp(arch->name, chip, length);
}

static void hip_find_archs(hip_device* device, const char* chip) {
  arch_list* list = &device->archs;
  size_t used = 0, size = sizeof(list->reason);
  list->device_type = kDLROCM;
  list->forced = settings_get()->num_forced > 0;
  for (uint32_t i = 0; i < this_library.num_archs; i++)
    if (hip_runs_on(&this_library.archs[i], chip)) list->archs[list->count++] = (uint8_t)i;
  if (list->count > 0) return;
  list->status = TILEC_ERR_NO_ARCH;
  text_append(list->reason, size, &used, "no code for device %d, a %.*s; there is code for ", device->number,
              (int)strcspn(chip, ":"), chip);
  text_archs(list->reason, size, &used, kDLROCM);
}

static tilec_status hip_read_device(hip_device* device, int32_t number) {
  _Alignas(16) char properties[HIP_PROPERTIES_ROOM] = {0};
  hipError result = hip.properties(properties, number);
  if (result != HIP_OK) return hip_fail(TILEC_ERR_DRIVER, this_library.info.name, "reading a device", result);
  device->number = number;
  memcpy(&device->units, properties + hip.layout->units, sizeof(device->units));
  hip_find_archs(device, properties + hip.layout->arch);
  atomic_store_explicit(&device->known, true, memory_order_release);
  return TILEC_OK;
}

static COLD tilec_status hip_find_device(int32_t number, hip_device** out) {
  tilec_status status = hip_open();
  if (UNLIKELY(status != TILEC_OK)) return status;
  if (UNLIKELY(number < 0 || number >= hip_device_count() || number >= MAX_HIP_DEVICES)) {
    return fail(TILEC_ERR_DEVICE, "%s: there is no AMD GPU %d among %d", this_library.info.name, number,
                hip_device_count());
  }
  hip_device* device = *out = &hip_devices[number];
  hip_lock();
  if (!atomic_load(&device->known)) status = hip_read_device(device, number);
  hip_unlock();
  return status;
}

LOCAL tilec_status hip_device_get(int32_t number, hip_device** out) {
  bool in_table = (uint32_t)number < MAX_HIP_DEVICES;
  if (UNLIKELY(!in_table || !atomic_load_explicit(&hip_devices[number].known, memory_order_acquire)))
    return hip_find_device(number, out);
  *out = &hip_devices[number];
  return TILEC_OK;
}

LOCAL void hip_after_fork(void) {
  if (!hip_is_lost()) return;
  for (int i = 0; i < MAX_HIP_DEVICES; i++) atomic_store(&hip_devices[i].known, false);
}

LOCAL tilec_status hip_archs(int32_t number, const arch_list** out) {
  hip_device* device;
  tilec_status status = hip_device_get(number, &device);
  if (LIKELY(status == TILEC_OK)) *out = &device->archs;
  return status;
}

LOCAL int64_t hip_units(const tilec_exec* exec) { return hip_devices[exec->device.device_id].units; }

LOCAL hip_device* hip_device_of(const arch_list* archs) {
  return (hip_device*)((char*)archs - offsetof(hip_device, archs));
}

LOCAL tilec_status hip_enter(const hip_device* device, int* before) {
  hipError result = hip.current(before);
  if (result == HIP_OK && *before != device->number) result = hip.select(device->number);
  if (result == HIP_OK) return TILEC_OK;
  return hip_fail(TILEC_ERR_DRIVER, this_library.info.name, "choosing a device", result);
}

LOCAL void hip_leave(const hip_device* device, int before) {
  if (before != device->number) hip.select(before);
}
