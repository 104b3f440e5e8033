#include "kernels.hpp"

#include <algorithm>
#include <stdexcept>
#include <vector>

namespace llama {
namespace {

void check(tilec_status status) {
  if (status != TILEC_OK) throw std::runtime_error(llama_kernels_last_error());
}

DLDataType dltype(Type type) {
  switch (type) {
    case Type::kFloat32: return {kDLFloat, 32, 1};
    case Type::kBfloat16: return {kDLBfloat, 16, 1};
    case Type::kFloat16: return {kDLFloat, 16, 1};
    case Type::kFloat8: return {kDLFloat8_e4m3fn, 8, 1};
    case Type::kInt32: return {kDLInt, 32, 1};
    case Type::kByte: return {kDLUInt, 8, 1};
  }
  return {};
}

// The dims of a call, as the shapes and strides of its tensors show them.
std::vector<std::int64_t> dims_of(const tilec_kernel& kernel, const std::vector<DLTensor>& tensors) {
  std::vector<std::int64_t> dims(kernel.num_dims);
  const auto read = [&](const tilec_extent* extents, const std::int64_t* values, std::int32_t rank) {
    for (std::int32_t axis = 0; extents != nullptr && axis < rank; ++axis)
      if (extents[axis].dim >= 0) dims[static_cast<std::size_t>(extents[axis].dim)] = values[axis];
  };
  for (std::uint32_t i = 0; i < kernel.num_params; ++i) {
    if (kernel.params[i]->tag != TILEC_ARG_TENSOR) continue;
    if (tensors[i].ndim != kernel.params[i]->ndim) continue;  // the launch says so
    read(kernel.params[i]->shape, tensors[i].shape, tensors[i].ndim);
    read(kernel.params[i]->strides, tensors[i].strides, tensors[i].ndim);
  }
  return dims;
}

}  // namespace

std::int64_t bytes_of(Type type) { return dltype(type).bits / 8; }

const char* name_of(Type type) {
  return type == Type::kFloat32 ? "float32" : type == Type::kFloat16 ? "float16" : "bfloat16";
}

Tensor::Tensor(const void* data, Type type, std::initializer_list<std::int64_t> shape,
               std::initializer_list<std::int64_t> strides)
    : data_(const_cast<void*>(data)), type_(type), rank_(static_cast<std::int32_t>(shape.size())) {
  std::copy(shape.begin(), shape.end(), shape_.begin());
  std::copy(strides.begin(), strides.end(), strides_.begin());
}

Tensor::Tensor(const void* data, Type type, std::initializer_list<std::int64_t> shape) : Tensor(data, type, shape, {}) {
  std::int64_t step = 1;
  for (auto axis = static_cast<std::size_t>(rank_); axis-- > 0; step *= shape_[axis]) strides_[axis] = step;
}

DLTensor Tensor::view(const DLDevice& device) const {
  DLTensor made{};
  made.data = data_;
  made.device = device;
  made.ndim = rank_;
  made.dtype = dltype(type_);
  made.shape = const_cast<std::int64_t*>(shape_.data());
  made.strides = const_cast<std::int64_t*>(strides_.data());
  return made;
}

Kernels::Kernels(Device& device) : exec_(device.exec()), workspace_(device) {
  check(llama_kernels_check_build(LLAMA_KERNELS_BUILD_ID));
  check(llama_kernels_library()->preload(nullptr, exec_.device));
}

bool Kernels::serves(const std::string& name, std::initializer_list<Argument> arguments) const {
  const tilec_kernel* kernel = llama_kernels_library()->find(name.c_str());
  if (kernel == nullptr || kernel->num_params != arguments.size()) return false;
  std::vector<DLTensor> tensors(arguments.size());
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (const Tensor* tensor = std::get_if<Tensor>(arguments.begin() + i)) tensors[i] = tensor->view(exec_.device);
  const tilec_variant* found = nullptr;
  const std::vector<std::int64_t> dims = dims_of(*kernel, tensors);
  return llama_kernels_library()->select(kernel, exec_.device, dims.data(), nullptr, &found) == TILEC_OK;
}

const tilec_kernel* Kernels::find(const std::string& name) {
  const tilec_kernel*& kernel = found_[name];
  if (kernel == nullptr) kernel = llama_kernels_library()->find(name.c_str());
  if (kernel == nullptr) throw std::runtime_error("the library has no kernel " + name + ": llama.toml lists what it has");
  return kernel;
}

void Kernels::call(const std::string& name, std::initializer_list<Argument> arguments) {
  const tilec_kernel* kernel = find(name);
  std::vector<DLTensor> tensors(arguments.size());
  std::vector<tilec_arg> list(arguments.size());
  for (std::size_t i = 0; i < list.size(); ++i) {
    const Argument& argument = arguments.begin()[i];
    if (const Tensor* tensor = std::get_if<Tensor>(&argument)) {
      tensors[i] = tensor->view(exec_.device);
      list[i].tag = TILEC_ARG_TENSOR;
      list[i].v.tensor = &tensors[i];
    } else if (const float* number = std::get_if<float>(&argument)) {
      list[i].tag = TILEC_ARG_FLOAT;
      list[i].v.f = static_cast<double>(*number);
    } else {
      list[i].tag = TILEC_ARG_INT;
      list[i].v.i = std::get<std::int32_t>(argument);
    }
  }
  std::size_t bytes = 0;
  if (list.size() == kernel->num_params) {  // else the launch says so
    const std::vector<std::int64_t> dims = dims_of(*kernel, tensors);
    check(llama_kernels_library()->workspace_size(kernel, nullptr, &exec_, dims.data(), &bytes));
  }
  if (bytes > exec_.workspace_size) {
    exec_.workspace = workspace_.reserve(bytes);
    exec_.workspace_size = bytes;
  }
  check(llama_kernels_library()->launch(kernel, &exec_, list.data(), list.size()));
}

}  // namespace llama
