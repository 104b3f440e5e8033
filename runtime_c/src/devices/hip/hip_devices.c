/* The devices: which architecture of the library each runs. */
#include "devices/hip/hip.h"

#include <stdatomic.h>
#include <string.h>

#include "devices/hip/hip_records.h"

static hip_device hip_devices[MAX_HIP_DEVICES];

/* A code object runs on its own chip alone: "gfx942" of a device that calls itself "gfx942:sramecc+:xnack-".
 */
static bool hip_runs_on(const arch_record* arch, const char* chip) {
  size_t length = strcspn(chip, ":");
  return arch->device_type == kDLROCM && strlen(arch->name) == length && !memcmp(arch->name, chip, length);
}

static void hip_find_archs(driver_device* device, const char* chip) {
  arch_list* list = driver_begin_archs(device, kDLROCM);
  for (uint32_t i = 0; i < this_library.num_archs; i++)
    if (hip_runs_on(&this_library.archs[i], chip)) list->archs[list->count++] = (uint8_t)i;
  if (list->count == 0) driver_no_code(device, ", a %.*s", (int)strcspn(chip, ":"), chip);
}

static tilec_status hip_read_device(driver_device* head) {
  hip_device* device = (hip_device*)head;
  _Alignas(16) char properties[HIP_PROPERTIES_ROOM] = {0};
  hipError result = hip.properties(properties, head->number);
  if (result != HIP_OK) return hip_fail(TILEC_ERR_DRIVER, this_library.info.name, "reading a device", result);
  memcpy(&device->units, properties + hip.layout->units, sizeof(device->units));
  hip_find_archs(head, properties + hip.layout->arch);
  return TILEC_OK;
}

static const device_table hip_table = {
    .driver = &hip_driver,
    .open = hip_open,
    .noun = "AMD GPU",
    DEVICE_RECORDS(hip_devices),
    .read = hip_read_device,
};

LOCAL tilec_status hip_device_get(int32_t number, hip_device** out) {
  return driver_find(&hip_table, number, (driver_device**)out);
}

LOCAL tilec_status hip_archs(int32_t number, const arch_list** out) {
  return driver_archs(&hip_table, number, out);
}

LOCAL void hip_after_fork(void) { driver_after_fork(&hip_table); }

LOCAL int64_t hip_units(const tilec_exec* exec) { return hip_devices[exec->device.device_id].units; }

LOCAL hip_device* hip_device_of(const arch_list* archs) { return (hip_device*)driver_device_of(archs); }

LOCAL tilec_status hip_enter(const hip_device* device, int* before) {
  hipError result = hip.current(before);
  if (result == HIP_OK && *before != device->head.number) result = hip.select(device->head.number);
  if (result == HIP_OK) return TILEC_OK;
  return hip_fail(TILEC_ERR_DRIVER, this_library.info.name, "choosing a device", result);
}

LOCAL void hip_leave(const hip_device* device, int before) {
  if (before != device->head.number) hip.select(before);
}
