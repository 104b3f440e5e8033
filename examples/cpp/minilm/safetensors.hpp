// A read-only view of a safetensors file: mapped, never copied.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace minilm {

struct Tensor {
  std::string dtype;                  // "F32", "I64", ... as the file spells it
  std::vector<std::int64_t> shape;
  const std::byte* data = nullptr;    // into the mapping
  std::size_t size = 0;               // bytes
};

// The file stays mapped as long as this object lives; tensors point into it.
class Safetensors {
 public:
  explicit Safetensors(const std::string& path);  // throws std::runtime_error
  ~Safetensors();
  Safetensors(const Safetensors&) = delete;
  Safetensors& operator=(const Safetensors&) = delete;

  // The float32 data of `name`. Throws std::runtime_error when it is absent or has another dtype or shape.
  const float* f32(const std::string& name, const std::vector<std::int64_t>& shape) const;

 private:
  const std::byte* base_ = nullptr;
  std::size_t size_ = 0;
  std::unordered_map<std::string, Tensor> tensors_;
};

}  // namespace minilm
