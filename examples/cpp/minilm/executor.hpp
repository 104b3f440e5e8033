// How the engine calls the kernel library: its own threads, its own workspace, errors as exceptions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "minilm_kernels.h"
#include "thread_pool.hpp"

namespace minilm {

// Bytes that kernels and vector units like: every buffer starts at a multiple of this.
constexpr std::size_t kAlignment = 64;

// Uninitialised memory at a multiple of kAlignment, on huge pages where it fills one and the system has them:
// weights are read from end to end for every batch. Throws std::bad_alloc; std::free releases it.
void* allocate(std::size_t bytes);

// A growing array of what `allocate` gives; never shrinks.
template <typename T>
class AlignedBuffer {
 public:
  // At least `count` elements; contents are lost when it grows.
  T* reserve(std::size_t count) {
    if (count <= capacity_) return data_.get();
    data_.reset(static_cast<T*>(allocate(count * sizeof(T))));
    capacity_ = count;
    return data_.get();
  }
  T* data() const { return data_.get(); }
  std::size_t capacity() const { return capacity_; }

 private:
  struct Free {
    void operator()(T* p) const { std::free(p); }
  };
  std::unique_ptr<T, Free> data_;
  std::size_t capacity_ = 0;
};

class Executor {
 public:
  explicit Executor(std::uint32_t threads);

  // One call of the library: `size_of` is the kernel's workspace function, `kernel` its typed door, both taking
  // the exec first; grows the workspace to what the call needs. Throws std::runtime_error with the library's
  // message.
  template <typename Size, typename Kernel>
  void call(Size size_of, Kernel kernel) {
    std::size_t bytes = 0;
    check(size_of(&exec_, &bytes));
    grow(bytes);
    check(kernel(&exec_));
  }

 private:
  void grow(std::size_t bytes);
  static void check(tilec_status status);

  ThreadPool pool_;
  AlignedBuffer<std::byte> workspace_;
  tilec_exec exec_{};
};

}  // namespace minilm
