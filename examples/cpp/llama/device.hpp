// Where a model runs: memory, copies, and how kernels are called there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "llama_kernels.h"

namespace llama {

// A device owns what it allocates until it is destroyed. Calls throw std::runtime_error or std::bad_alloc.
class Device {
 public:
  virtual ~Device() = default;

  // Uninitialised memory, aligned for any kernel; stays until the device goes.
  virtual void* allocate(std::size_t bytes) = 0;
  // Copies that are done, as the host sees it, when they return.
  virtual void upload(void* to, const void* from, std::size_t bytes) = 0;
  virtual void download(void* to, const void* from, std::size_t bytes) = 0;
  // How calls of kernels run here: device, stream, threads.
  virtual const tilec_exec& exec() const = 0;
};

// This machine's CPU with `threads` threads.
std::unique_ptr<Device> make_cpu(std::uint32_t threads);

// Memory of a device that grows; its contents are lost when it does.
class Buffer {
 public:
  explicit Buffer(Device& device) : device_(&device) {}

  void* reserve(std::size_t bytes) {
    if (bytes > size_) {
      data_ = device_->allocate(bytes + bytes / 2);
      size_ = bytes + bytes / 2;
    }
    return data_;
  }
  void* data() const { return data_; }

 private:
  Device* device_;
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace llama
