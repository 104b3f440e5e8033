/* The device: the GPU that the system prefers, and whether it runs what the library has. */
#include "devices/metal/metal.h"

#include <stdatomic.h>
#include <stddef.h>

#include "devices/metal/metal_records.h"
#include "status.h"

static metal_device metal_devices[MAX_METAL_DEVICES];

static bool metal_supports(metal_id object, long family) {
  return METAL_TELL(signed char, long)(object, metal.selectors.supports, family) != 0;
}

/* All code is for Metal 3 on Apple's own GPUs, whose simdgroups have 32 lanes and matrices. */
static void metal_find_archs(metal_device* device) {
  arch_list* list = driver_begin_archs(&device->head, kDLMetal);
  bool runs = metal_supports(device->object, METAL_FAMILY_METAL3) &&
              metal_supports(device->object, METAL_FAMILY_APPLE7);
  for (uint32_t i = 0; i < this_library.num_archs; i++)
    if (runs && this_library.archs[i].device_type == kDLMetal) list->archs[list->count++] = (uint8_t)i;
  if (list->count > 0) return;
  metal_id name = METAL_ASK(metal_id)(device->object, metal.selectors.name);
  driver_no_code(&device->head, ", %.64s", METAL_ASK(const char*)(name, metal.selectors.text));
}

static tilec_status metal_read_device(driver_device* head) {
  metal_device* device = (metal_device*)head;
  void* pool = metal.pool_push();
  device->object = metal.default_device();
  if (device->object) {
    device->queue = METAL_ASK(metal_id)(device->object, metal.selectors.queue);
    metal_find_archs(device);
  }
  metal.pool_pop(pool);
  if (device->object) return TILEC_OK;
  return fail(TILEC_ERR_DEVICE, "%s: the system has no GPU for Metal", this_library.info.name);
}

static const device_table metal_table = {
    .driver = &metal_driver,
    .open = metal_open,
    .noun = "Apple GPU",
    DEVICE_RECORDS(metal_devices),
    .read = metal_read_device,
};

LOCAL tilec_status metal_device_get(int32_t number, metal_device** out) {
  return driver_find(&metal_table, number, (driver_device**)out);
}

LOCAL tilec_status metal_archs(int32_t number, const arch_list** out) {
  return driver_archs(&metal_table, number, out);
}

LOCAL void metal_after_fork(void) { driver_after_fork(&metal_table); }

LOCAL int64_t metal_units(const tilec_exec* exec) {
  (void)exec;
  return METAL_CORES;
}

LOCAL metal_device* metal_device_of(const arch_list* archs) { return (metal_device*)driver_device_of(archs); }
