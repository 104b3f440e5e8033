// The encoder on a CUDA device: weights and activations in float16, sums in float32, everything on one stream.
#pragma once

#include <vector>

#include "backend.hpp"
#include "cuda_device.hpp"
#include "executor.hpp"
#include "host_memory.hpp"

namespace minilm {

class CudaExecutor final : public Executor {
 public:
  explicit CudaExecutor(CudaDevice& device);

 private:
  void* grow(std::size_t bytes) override { return workspace_.reserve(bytes); }

  DeviceBuffer workspace_;
};

class CudaBackend final : public Backend {
 public:
  // Loads the library's kernels onto the device. Throws std::runtime_error: no driver, no such device, no code for it.
  explicit CudaBackend(int device);

  const void* matrix(std::initializer_list<const float*> parts, std::int64_t features, std::int64_t inputs) override;
  const void* vector(std::initializer_list<const float*> parts, std::int64_t count) override;
  void begin(const Batch& batch) override;
  void embed(const Tables& tables, Slot out) override;
  void linear(Slot in, const void* matrix, const void* bias, Slot out, std::int64_t inputs, std::int64_t features,
              bool gelu) override;
  void attend(Slot in, Slot out) override;
  void add_norm(Slot in, Slot residual, const void* gain, const void* shift, Slot out) override;
  const float* pool(Slot in) override;

 private:
  // The columns of a batch on the device, behind one another.
  struct Columns {
    const std::int32_t *ids, *positions, *types, *starts, *lengths;
  };

  CudaDevice device_;
  CudaExecutor executor_;
  std::vector<DeviceBuffer> weights_, slots_;
  DeviceBuffer staging_, batch_memory_, vectors_;
  std::vector<std::int32_t> joined_;  // the columns before they are copied
  AlignedBuffer<float> answer_;
  Columns columns_{};
  std::int64_t tokens_ = 0, sentences_ = 0;
  std::int32_t longest_ = 0;
};

}  // namespace minilm
