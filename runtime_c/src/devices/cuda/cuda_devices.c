/* The devices: which architectures of the library each may run, and a context on it. */
#include "devices/cuda/cuda.h"

#include <stdatomic.h>
#include <stdio.h>

#include "status.h"

static cuda_device cuda_devices[MAX_CUDA_DEVICES];

/* A cubin runs on its own major version from its minor on, PTX on everything from its capability on. */
static bool runs_on(const arch_record* arch, uint32_t capability) {
  uint32_t wanted = arch->facts[CUDA_CAPABILITY];
  if (arch->device_type != kDLCUDA || capability < wanted) return false;
  if (arch->facts[CUDA_EXACT]) return capability == wanted;
  return arch->facts[CUDA_PTX] || capability / 10 == wanted / 10;
}

static void find_archs(driver_device* device, uint32_t capability) {
  arch_list* list = driver_begin_archs(device, kDLCUDA);
  uint32_t wanted = 0;
  for (uint32_t i = 0; i < this_library.num_archs; i++) {
    const arch_record* arch = &this_library.archs[i];
    if (!runs_on(arch, capability)) continue;
    uint32_t least = arch->facts[CUDA_MIN_DRIVER];
    if ((uint32_t)cuda_driver_version() >= least)
      list->archs[list->count++] = (uint8_t)i;
    else if (wanted == 0 || least < wanted)
      wanted = least;
  }
  if (list->count > 0) return;
  if (wanted) {
    int version = cuda_driver_version();
    list->status = TILEC_ERR_DRIVER_TOO_OLD;
    snprintf(list->reason, sizeof(list->reason),
             "the code for device %d needs a driver of CUDA %u.%u, this is %d.%d", device->number,
             wanted / 1000, wanted % 1000 / 10, version / 1000, version % 1000 / 10);
    return;
  }
  driver_no_code(device, " of compute capability %u.%u", capability / 10, capability % 10);
}

static tilec_status cuda_read_device(driver_device* head) {
  int major = 0, minor = 0;
  cuda_device* device = (cuda_device*)head;
  CUresult result = cuda.device_get(&device->handle, head->number);
  if (result == CUDA_OK)
    result = cuda.device_attribute(&device->multiprocessors, CU_ATTRIBUTE_MULTIPROCESSORS, device->handle);
  if (result == CUDA_OK) result = cuda.device_attribute(&major, CU_ATTRIBUTE_MAJOR, device->handle);
  if (result == CUDA_OK) result = cuda.device_attribute(&minor, CU_ATTRIBUTE_MINOR, device->handle);
  if (result != CUDA_OK)
    return cuda_fail(TILEC_ERR_DRIVER, this_library.info.name, "reading a device", result);
  find_archs(head, (uint32_t)(10 * major + minor));
  return TILEC_OK;
}

static const device_table cuda_table = {
    .driver = &cuda_driver,
    .open = cuda_open,
    .noun = "CUDA device",
    DEVICE_RECORDS(cuda_devices),
    .read = cuda_read_device,
};

LOCAL tilec_status cuda_device_get(int32_t number, cuda_device** out) {
  return driver_find(&cuda_table, number, (driver_device**)out);
}

LOCAL tilec_status cuda_archs(int32_t number, const arch_list** out) {
  return driver_archs(&cuda_table, number, out);
}

LOCAL void cuda_after_fork(void) { driver_after_fork(&cuda_table); }

LOCAL int64_t cuda_units(const tilec_exec* exec) {
  return cuda_devices[exec->device.device_id].multiprocessors;
}

LOCAL cuda_device* cuda_device_of(const arch_list* archs) { return (cuda_device*)driver_device_of(archs); }

static CUresult retain_primary(cuda_device* device, CUcontext* out) {
  CUresult result = CUDA_OK;
  *out = atomic_load_explicit(&device->primary, memory_order_acquire);
  if (*out) return result;
  cuda_lock();
  *out = atomic_load(&device->primary);
  if (!*out) result = cuda.primary_retain(out, device->handle);
  if (result == CUDA_OK) atomic_store_explicit(&device->primary, *out, memory_order_release);
  cuda_unlock();
  return result;
}

LOCAL tilec_status cuda_enter(cuda_device* device, bool* pushed) {
  CUdevice current;
  CUcontext primary;
  *pushed = false;
  if (cuda.context_device(&current) == CUDA_OK && current == device->handle) return TILEC_OK;
  CUresult result = retain_primary(device, &primary);
  if (result == CUDA_OK) result = cuda.context_push(primary);
  if (result != CUDA_OK)
    return cuda_fail(TILEC_ERR_DRIVER, this_library.info.name, "entering the primary context", result);
  *pushed = true;
  return TILEC_OK;
}

LOCAL bool cuda_in_primary(cuda_device* device) {
  CUcontext current, primary;
  unsigned flags;
  int active = 0;
  if (cuda.primary_state(device->handle, &flags, &active) != CUDA_OK || !active) return false;
  if (cuda.context_current(&current) != CUDA_OK) return false;
  return retain_primary(device, &primary) == CUDA_OK && current == primary;
}

static CUresult device_of_stream(CUstream stream, CUdevice* out) {
  CUcontext context;
  CUresult result = cuda.stream_context(stream, &context);
  if (result == CUDA_OK) result = cuda.context_push(context);
  if (result != CUDA_OK) return result;
  result = cuda.context_device(out);
  cuda.context_pop(&context);
  return result;
}

/* A kernel runs in its stream's context, whichever is current, so that the driver would not refuse. */
LOCAL tilec_status cuda_check_stream(const cuda_device* device, CUstream stream) {
  CUdevice found;
  if (cuda_driver.num_devices == 1 || (uintptr_t)stream <= CU_STREAM_PER_THREAD) return TILEC_OK;
  CUresult result = device_of_stream(stream, &found);
  if (result != CUDA_OK)
    return cuda_fail(TILEC_ERR_DEVICE, this_library.info.name, "asking the stream for its device", result);
  if (found == device->handle) return TILEC_OK;
  return fail(TILEC_ERR_DEVICE, "%s: the stream is of another device than exec->device, cuda:%d",
              this_library.info.name, device->head.number);
}

LOCAL void cuda_leave(bool pushed) {
  CUcontext popped;
  if (pushed) cuda.context_pop(&popped);
}
