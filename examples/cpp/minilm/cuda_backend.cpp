#include "cuda_backend.hpp"

#include <stdexcept>

namespace minilm {
namespace {

constexpr std::size_t kHalf = 2;  // bytes of a float16

std::size_t bytes_of(std::int64_t count, std::size_t size) { return static_cast<std::size_t>(count) * size; }

}  // namespace

CudaExecutor::CudaExecutor(CudaDevice& device) : workspace_(device) {
  exec_.struct_size = sizeof exec_;
  exec_.device = DLDevice{kDLCUDA, device.number()};
  exec_.stream = device.stream();
  check(minilm_kernels_library()->preload(nullptr, exec_.device));
}

CudaBackend::CudaBackend(int device)
    : device_(device), executor_(device_), staging_(device_), batch_memory_(device_), vectors_(device_) {
  for (int slot = 0; slot < kSlots; ++slot) slots_.emplace_back(device_);
}

// ---- weights ----

const void* CudaBackend::matrix(std::initializer_list<const float*> parts, std::int64_t features,
                                std::int64_t inputs) {
  return vector(parts, features * inputs);
}

const void* CudaBackend::vector(std::initializer_list<const float*> parts, std::int64_t count) {
  auto* out = static_cast<std::byte*>(weights_.emplace_back(device_).reserve(parts.size() * bytes_of(count, kHalf)));
  auto* wide = static_cast<float*>(staging_.reserve(bytes_of(count, sizeof(float))));
  for (const float* part : parts) {
    device_.upload(wide, part, bytes_of(count, sizeof(float)));
    executor_.call(
        [&](const tilec_exec* exec, std::size_t* size) { return minilm_kernels_to_f16_workspace(exec, count, size); },
        [&](const tilec_exec* exec) { return minilm_kernels_to_f16(exec, wide, out, count); });
    out += bytes_of(count, kHalf);
  }
  return weights_.back().data();
}

// ---- one batch ----

void CudaBackend::begin(const Batch& batch) {
  tokens_ = batch.tokens();
  sentences_ = batch.sentences();
  longest_ = batch.longest;
  for (int slot = 0; slot < kSlots; ++slot)
    slots_[static_cast<std::size_t>(slot)].reserve(bytes_of(tokens_ * kWidths[slot], kHalf));
  vectors_.reserve(bytes_of(sentences_ * kHidden, sizeof(float)));
  answer_.reserve(static_cast<std::size_t>(sentences_ * kHidden));
  constexpr std::size_t kColumnAlignment = 16 / sizeof(std::int32_t);  // tensors start at multiples of 16 bytes
  joined_.clear();
  std::vector<std::size_t> begins;
  for (const auto* column : {&batch.ids, &batch.positions, &batch.types, &batch.starts, &batch.lengths}) {
    begins.push_back(joined_.size());
    joined_.insert(joined_.end(), column->begin(), column->end());
    joined_.resize((joined_.size() + kColumnAlignment - 1) / kColumnAlignment * kColumnAlignment);
  }
  const std::size_t bytes = joined_.size() * sizeof(std::int32_t);
  const auto* at = static_cast<const std::int32_t*>(batch_memory_.reserve(bytes));
  device_.upload(batch_memory_.data(), joined_.data(), bytes);
  columns_ = {at + begins[0], at + begins[1], at + begins[2], at + begins[3], at + begins[4]};
}

void CudaBackend::embed(const Tables& tables, Slot out) {
  executor_.call(
      [&](const tilec_exec* exec, std::size_t* size) {
        return minilm_kernels_embed_f16_workspace(exec, tokens_, kVocabulary, kHidden, kPositions, kTypes, size);
      },
      [&](const tilec_exec* exec) {
        return minilm_kernels_embed_f16(exec, columns_.ids, columns_.positions, columns_.types, tables.words,
                                        tables.positions, tables.types, tables.gain, tables.shift, slots_[out].data(),
                                        tokens_, kVocabulary, kHidden, kPositions, kTypes);
      });
}

void CudaBackend::linear(Slot in, const void* matrix, const void* bias, Slot out, std::int64_t inputs,
                         std::int64_t features, bool gelu) {
  const auto size_of = gelu ? minilm_kernels_linear_gelu_f16_workspace : minilm_kernels_linear_f16_workspace;
  const auto kernel = gelu ? minilm_kernels_linear_gelu_f16 : minilm_kernels_linear_f16;
  executor_.call(
      [&](const tilec_exec* exec, std::size_t* size) { return size_of(exec, tokens_, inputs, features, size); },
      [&](const tilec_exec* exec) {
        return kernel(exec, slots_[in].data(), matrix, bias, slots_[out].data(), tokens_, inputs, features);
      });
}

void CudaBackend::attend(Slot in, Slot out) {
  executor_.call(
      [&](const tilec_exec* exec, std::size_t* size) {
        return minilm_kernels_attention_f16_workspace(exec, tokens_, kHeads, kHeadDim, sentences_, size);
      },
      [&](const tilec_exec* exec) {
        return minilm_kernels_attention_f16(exec, slots_[in].data(), columns_.starts, columns_.lengths, longest_,
                                            slots_[out].data(), tokens_, kHeads, kHeadDim, sentences_);
      });
}

void CudaBackend::add_norm(Slot in, Slot residual, const void* gain, const void* shift, Slot out) {
  executor_.call(
      [&](const tilec_exec* exec, std::size_t* size) {
        return minilm_kernels_layernorm_residual_f16_workspace(exec, tokens_, kHidden, kHidden, size);
      },
      [&](const tilec_exec* exec) {
        return minilm_kernels_layernorm_residual_f16(exec, slots_[in].data(), slots_[residual].data(), gain, shift,
                                                     slots_[out].data(), tokens_, kHidden, kHidden);
      });
}

const float* CudaBackend::pool(Slot in) {
  auto* vectors = static_cast<float*>(vectors_.data());
  executor_.call(
      [&](const tilec_exec* exec, std::size_t* size) {
        return minilm_kernels_mean_pool_f16_workspace(exec, tokens_, kHidden, sentences_, kHidden, size);
      },
      [&](const tilec_exec* exec) {
        return minilm_kernels_mean_pool_f16(exec, slots_[in].data(), columns_.starts, columns_.lengths, vectors, tokens_,
                                            kHidden, sentences_, kHidden);
      });
  device_.download(answer_.data(), vectors, bytes_of(sentences_ * kHidden, sizeof(float)));
  return answer_.data();
}

}  // namespace minilm
