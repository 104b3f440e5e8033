/* The device: the GPU that the system prefers, and whether it runs what the library has. */
#include "devices/metal/metal.h"

#include <stdatomic.h>
#include <stddef.h>

#include "devices/metal/metal_records.h"
#include "settings.h"
#include "status.h"

static metal_device metal_devices[MAX_METAL_DEVICES];

static bool metal_supports(metal_id object, long family) {
  return METAL_TELL(signed char, long)(object, metal.selectors.supports, family) != 0;
}

/* All code is for Metal 3 on Apple's own GPUs, whose simdgroups have 32 lanes and matrices. */
static void metal_find_archs(metal_device* device) {
  arch_list* list = &device->archs;
  size_t used = 0, size = sizeof(list->reason);
  bool runs = metal_supports(device->object, METAL_FAMILY_METAL3) &&
              metal_supports(device->object, METAL_FAMILY_APPLE7);
  list->device_type = kDLMetal;
  list->forced = settings_get()->num_forced > 0;
  for (uint32_t i = 0; i < this_library.num_archs; i++)
    if (runs && this_library.archs[i].device_type == kDLMetal) list->archs[list->count++] = (uint8_t)i;
  if (list->count > 0) return;
  metal_id name = METAL_ASK(metal_id)(device->object, metal.selectors.name);
  list->status = TILEC_ERR_NO_ARCH;
  text_append(list->reason, size, &used, "no code for device 0, %.64s; there is code for ",
              METAL_ASK(const char*)(name, metal.selectors.text));
  text_archs(list->reason, size, &used, kDLMetal);
}

static tilec_status metal_read_device(metal_device* device) {
  void* pool = metal.pool_push();
  device->object = metal.default_device();
  if (device->object) {
    device->queue = METAL_ASK(metal_id)(device->object, metal.selectors.queue);
    metal_find_archs(device);
    atomic_store_explicit(&device->known, true, memory_order_release);
  }
  metal.pool_pop(pool);
  if (device->object) return TILEC_OK;
  return fail(TILEC_ERR_DEVICE, "%s: the system has no GPU for Metal", this_library.info.name);
}

static COLD tilec_status metal_find_device(int32_t number, metal_device** out) {
  tilec_status status = metal_open();
  if (UNLIKELY(status != TILEC_OK)) return status;
  if (UNLIKELY(number != 0))
    return fail(TILEC_ERR_DEVICE, "%s: there is no Apple GPU %d, the one of the system is 0",
                this_library.info.name, number);
  metal_device* device = *out = &metal_devices[0];
  metal_lock();
  if (!atomic_load(&device->known)) status = metal_read_device(device);
  metal_unlock();
  return status;
}

LOCAL tilec_status metal_device_get(int32_t number, metal_device** out) {
  if (UNLIKELY(number != 0 || !atomic_load_explicit(&metal_devices[0].known, memory_order_acquire)))
    return metal_find_device(number, out);
  *out = &metal_devices[0];
  return TILEC_OK;
}

LOCAL void metal_after_fork(void) {
  if (!metal_is_lost()) return;
  for (int i = 0; i < MAX_METAL_DEVICES; i++) atomic_store(&metal_devices[i].known, false);
}

LOCAL tilec_status metal_archs(int32_t number, const arch_list** out) {
  metal_device* device;
  tilec_status status = metal_device_get(number, &device);
  if (LIKELY(status == TILEC_OK)) *out = &device->archs;
  return status;
}

LOCAL int64_t metal_units(const tilec_exec* exec) {
  (void)exec;
  return METAL_CORES;
}

LOCAL metal_device* metal_device_of(const arch_list* archs) {
  return (metal_device*)((char*)archs - offsetof(metal_device, archs));
}
