// The encoder on the CPU: packed weights, float32 activations, the library's threads.
#pragma once

#include <array>
#include <vector>

#include "backend.hpp"
#include "executor.hpp"
#include "host_memory.hpp"

namespace minilm {

// What the weights of the products are stored in and both of their operands rounded to; sums, activations and
// everything else are float32 in either case.
enum class Precision { kFloat32, kBfloat16 };

class CpuExecutor final : public Executor {
 public:
  explicit CpuExecutor(std::uint32_t threads);

 private:
  void* grow(std::size_t bytes) override { return workspace_.reserve(bytes); }

  AlignedBuffer<std::byte> workspace_;
};

class CpuBackend final : public Backend {
 public:
  CpuBackend(std::uint32_t threads, Precision precision);

  // Packed panels.
  const void* matrix(std::initializer_list<const float*> parts, std::int64_t features, std::int64_t inputs) override;
  // What is given, where it is one: it must outlive the backend.
  const void* vector(std::initializer_list<const float*> parts, std::int64_t count) override;
  void begin(const Batch& batch) override;
  void embed(const Tables& tables, Slot out) override;
  void linear(Slot in, const void* matrix, const void* bias, Slot out, std::int64_t inputs, std::int64_t features,
              bool gelu) override;
  void attend(Slot in, Slot out) override;
  void add_norm(Slot in, Slot residual, const void* gain, const void* shift, Slot out) override;
  const float* pool(Slot in) override;

 private:
  std::size_t panel_bytes(std::int64_t features, std::int64_t inputs) const;
  void pack(const float* weight, std::int64_t features, std::int64_t inputs);
  void pack_float32(const float* weight, std::int64_t features, std::int64_t inputs, float* out);

  CpuExecutor executor_;
  Precision precision_;
  const Batch* batch_ = nullptr;
  AlignedBuffer<std::byte> panels_;  // of all layers, in the order of use
  std::size_t packed_ = 0;           // bytes of panels_ in use
  std::vector<AlignedBuffer<float>> joined_;
  std::array<AlignedBuffer<float>, kSlots> slots_;
  AlignedBuffer<float> vectors_;
};

}  // namespace minilm
