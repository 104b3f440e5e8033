// Memory and one stream of a CUDA device through libcuda.so.1, which is opened when the first one is made: neither
// compiling nor linking the engine needs CUDA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace minilm {

class CudaDevice {
 public:
  // Makes the device's primary context current. Throws std::runtime_error: no driver, no such device.
  explicit CudaDevice(int number);
  ~CudaDevice();
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  int number() const { return number_; }
  void* stream() const { return stream_; }

  // The calls below throw std::runtime_error with the driver's name of the error. Copies are ordered with the
  // stream; `download` waits for it.
  void* allocate(std::size_t bytes);
  void release(void* memory);
  void upload(void* to, const void* from, std::size_t bytes);
  void download(void* to, const void* from, std::size_t bytes);

 private:
  void check(int result, const char* what) const;
  void* find(const char* name) const;
  // One function of the driver; its types are those of the arguments.
  template <typename... Arguments>
  void call(const char* name, Arguments... arguments) const {
    check(reinterpret_cast<int (*)(Arguments...)>(find(name))(arguments...), name);
  }

  int number_ = 0, handle_ = 0;
  void *driver_ = nullptr, *stream_ = nullptr;
};

// A growing block of device memory; never shrinks.
class DeviceBuffer {
 public:
  explicit DeviceBuffer(CudaDevice& device) : device_(&device) {}
  ~DeviceBuffer();
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&&) = delete;

  // At least `bytes`; contents are lost when it grows.
  void* reserve(std::size_t bytes);
  void* data() const { return data_; }

 private:
  CudaDevice* device_;
  void* data_ = nullptr;
  std::size_t capacity_ = 0;
};

}  // namespace minilm
