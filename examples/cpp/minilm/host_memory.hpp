// Host memory for weights and activations.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>

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

}  // namespace minilm
