// Where a model runs: memory, copies, and how kernels are called there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "llama_kernels.h"

namespace llama {

// A device owns what it allocates until it is destroyed. It does what it is asked for in that order. Calls throw
// std::runtime_error or std::bad_alloc.
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

  // Steps that may be under way while the host goes on. What is below is for devices where that is not 0.
  virtual std::int64_t ahead() const { return 0; }
  // Host memory, and a copy to it that has ended once a later mark has been waited for.
  virtual void* allocate_host(std::size_t bytes) { return allocate(bytes); }
  virtual void fetch(void* to, const void* from, std::size_t bytes) { download(to, from, bytes); }
  // The end of what has been asked for so far; the seconds between two that have been waited for. The last 8 are known.
  virtual std::int64_t mark() { return 0; }
  virtual void wait(std::int64_t) {}
  virtual double seconds(std::int64_t, std::int64_t) { return 0; }
  // What makes the calls of `work` again, of the same addresses and extents, for less of the host's time. Makes none.
  virtual std::function<void()> record(const std::function<void()>& work) { return work; }
};

// This machine's CPU with `threads` threads.
std::unique_ptr<Device> make_cpu(std::uint32_t threads);
// The CUDA device of this number, through libcuda.so.1, which is opened here. Throws std::runtime_error.
std::unique_ptr<Device> make_cuda(int number);

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
