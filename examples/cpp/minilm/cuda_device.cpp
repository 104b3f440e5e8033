#include "cuda_device.hpp"

#include <dlfcn.h>

#include <stdexcept>

namespace minilm {
namespace {

using Address = unsigned long long;  // CUdeviceptr
constexpr unsigned kNonBlocking = 1;

Address address(const void* memory) { return reinterpret_cast<Address>(memory); }

}  // namespace

CudaDevice::CudaDevice(int number) : number_(number) {
  driver_ = ::dlopen("libcuda.so.1", RTLD_NOW);
  if (driver_ == nullptr) throw std::runtime_error(std::string("no CUDA driver: ") + ::dlerror());
  void* context = nullptr;
  call("cuInit", 0U);
  call("cuDeviceGet", &handle_, number);
  call("cuDevicePrimaryCtxRetain", &context, handle_);
  call("cuCtxSetCurrent", context);
  call("cuStreamCreate", &stream_, kNonBlocking);
}

CudaDevice::~CudaDevice() {
  if (stream_ != nullptr) reinterpret_cast<int (*)(void*)>(find("cuStreamDestroy_v2"))(stream_);
  reinterpret_cast<int (*)(int)>(find("cuDevicePrimaryCtxRelease_v2"))(handle_);
}

void* CudaDevice::find(const char* name) const {
  void* function = ::dlsym(driver_, name);
  if (function == nullptr) throw std::runtime_error(std::string("the CUDA driver has no ") + name);
  return function;
}

void CudaDevice::check(int result, const char* what) const {
  if (result == 0) return;
  const char* name = nullptr;
  reinterpret_cast<int (*)(int, const char**)>(find("cuGetErrorName"))(result, &name);
  throw std::runtime_error(std::string(what) + " failed: " + (name != nullptr ? name : std::to_string(result)));
}

void* CudaDevice::allocate(std::size_t bytes) {
  Address made = 0;
  call("cuMemAlloc_v2", &made, bytes);
  return reinterpret_cast<void*>(made);
}

void CudaDevice::release(void* memory) { call("cuMemFree_v2", address(memory)); }

void CudaDevice::upload(void* to, const void* from, std::size_t bytes) {
  call("cuMemcpyHtoDAsync_v2", address(to), from, bytes, stream_);
}

void CudaDevice::download(void* to, const void* from, std::size_t bytes) {
  call("cuMemcpyDtoHAsync_v2", to, address(from), bytes, stream_);
  call("cuStreamSynchronize", stream_);
}

DeviceBuffer::~DeviceBuffer() {
  if (data_ == nullptr) return;
  try {
    device_->release(data_);
  } catch (const std::runtime_error&) {  // the device has failed, and its memory is gone with it
  }
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : device_(other.device_), data_(other.data_), capacity_(other.capacity_) {
  other.data_ = nullptr;
  other.capacity_ = 0;
}

// The driver waits for the device before it frees what kernels may still use.
void* DeviceBuffer::reserve(std::size_t bytes) {
  if (bytes <= capacity_) return data_;
  if (data_ != nullptr) device_->release(data_);
  data_ = nullptr;
  capacity_ = 0;
  data_ = device_->allocate(bytes);
  capacity_ = bytes;
  return data_;
}

}  // namespace minilm
