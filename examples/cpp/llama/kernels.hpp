// Calls of the library's kernels by name, through its generic door: element type and device are values here.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <unordered_map>
#include <variant>

#include "device.hpp"

namespace llama {

// Types of elements; activations are of one of the first three.
enum class Type { kFloat32, kBfloat16, kFloat16, kFloat8, kInt32, kByte };

std::int64_t bytes_of(Type type);
const char* name_of(Type type);

// A view of up to four extents, with strides in elements where rows do not lie back to back.
class Tensor {
 public:
  Tensor(const void* data, Type type, std::initializer_list<std::int64_t> shape);
  Tensor(const void* data, Type type, std::initializer_list<std::int64_t> shape,
         std::initializer_list<std::int64_t> strides);

  std::int64_t rows() const { return shape_[0]; }
  Type type() const { return type_; }
  DLTensor view(const DLDevice& device) const;  // borrows this tensor's extents

 private:
  void* data_;
  Type type_;
  std::int32_t rank_;
  std::array<std::int64_t, 4> shape_{}, strides_{};
};

using Argument = std::variant<Tensor, std::int32_t, float>;

class Kernels {
 public:
  // Loads the kernels. Throws std::runtime_error unless header and library are of one build and have code for the device.
  explicit Kernels(Device& device);

  // Runs kernel `name` with a workspace of the size that it asks for. Throws std::runtime_error with the library's
  // message, or when the library has no such kernel.
  void call(const std::string& name, std::initializer_list<Argument> arguments);

  // Whether the library has a kernel `name` with code for such a call on this device.
  bool serves(const std::string& name, std::initializer_list<Argument> arguments) const;

 private:
  const tilec_kernel* find(const std::string& name);

  tilec_exec exec_;
  Buffer workspace_;
  std::unordered_map<std::string, const tilec_kernel*> found_;
};

}  // namespace llama
