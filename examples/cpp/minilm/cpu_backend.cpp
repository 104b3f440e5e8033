#include "cpu_backend.hpp"

namespace minilm {

CpuExecutor::CpuExecutor(std::uint32_t threads) {
  exec_.struct_size = sizeof exec_;
  exec_.device = DLDevice{kDLCPU, 0};
  exec_.num_workers = threads;
}

CpuBackend::CpuBackend(std::uint32_t threads, Precision precision) : executor_(threads), precision_(precision) {
  panels_.reserve(kLayers * (panel_bytes(kFused + kHidden, kHidden) + 2 * panel_bytes(kInner, kHidden)));
}

// ---- weights ----

std::size_t CpuBackend::panel_bytes(std::int64_t features, std::int64_t inputs) const {
  return static_cast<std::size_t>(features * inputs) * (precision_ == Precision::kBfloat16 ? 2 : sizeof(float));
}

void CpuBackend::pack_float32(const float* weight, std::int64_t features, std::int64_t inputs, float* out) {
  executor_.call(
      [&](const tilec_exec* exec, std::size_t* size) {
        return minilm_kernels_pack_workspace(exec, features, inputs, inputs, size);
      },
      [&](const tilec_exec* exec) { return minilm_kernels_pack(exec, weight, out, features, inputs, inputs); });
}

// Packs behind what is packed already.
void CpuBackend::pack(const float* weight, std::int64_t features, std::int64_t inputs) {
  void* panels = panels_.data() + packed_;
  packed_ += panel_bytes(features, inputs);
  if (precision_ == Precision::kFloat32) return pack_float32(weight, features, inputs, static_cast<float*>(panels));
  executor_.call(
      [&](const tilec_exec* exec, std::size_t* size) {
        return minilm_kernels_pack_bf16_workspace(exec, features, inputs, inputs, size);
      },
      [&](const tilec_exec* exec) { return minilm_kernels_pack_bf16(exec, weight, panels, features, inputs, inputs); });
}

const void* CpuBackend::matrix(std::initializer_list<const float*> parts, std::int64_t features, std::int64_t inputs) {
  const std::byte* panels = panels_.data() + packed_;
  for (const float* part : parts) pack(part, features, inputs);
  return panels;
}

// A vector is a weight with one input: packed, it is itself.
const void* CpuBackend::vector(std::initializer_list<const float*> parts, std::int64_t count) {
  if (parts.size() == 1) return *parts.begin();
  float* joined = joined_.emplace_back().reserve(parts.size() * static_cast<std::size_t>(count));
  for (const float* part : parts) {
    pack_float32(part, count, 1, joined);
    joined += count;
  }
  return joined_.back().data();
}

// ---- one batch ----

void CpuBackend::begin(const Batch& batch) {
  batch_ = &batch;
  for (int slot = 0; slot < kSlots; ++slot)
    slots_[static_cast<std::size_t>(slot)].reserve(static_cast<std::size_t>(batch.tokens() * kWidths[slot]));
  vectors_.reserve(static_cast<std::size_t>(batch.sentences() * kHidden));
}

void CpuBackend::embed(const Tables& tables, Slot out) {
  const auto floats = [](const void* table) { return static_cast<const float*>(table); };
  executor_.call(
      [&](const tilec_exec* exec, std::size_t* size) {
        return minilm_kernels_embed_workspace(exec, batch_->tokens(), kVocabulary, kHidden, kPositions, kTypes, size);
      },
      [&](const tilec_exec* exec) {
        return minilm_kernels_embed(exec, batch_->ids.data(), batch_->positions.data(), batch_->types.data(),
                                    floats(tables.words), floats(tables.positions), floats(tables.types),
                                    floats(tables.gain), floats(tables.shift), slots_[out].data(), batch_->tokens(),
                                    kVocabulary, kHidden, kPositions, kTypes);
      });
}

void CpuBackend::linear(Slot in, const void* matrix, const void* bias, Slot out, std::int64_t inputs,
                        std::int64_t features, bool gelu) {
  // `panels` are floats or void: bfloat16 has no type of its own in C.
  const auto run = [&](auto size_of, auto kernel, auto* panels) {
    executor_.call(
        [&](const tilec_exec* exec, std::size_t* size) {
          return size_of(exec, batch_->tokens(), inputs, features, size);
        },
        [&](const tilec_exec* exec) {
          return kernel(exec, slots_[in].data(), panels, static_cast<const float*>(bias), slots_[out].data(),
                        batch_->tokens(), inputs, features);
        });
  };
  const auto* floats = static_cast<const float*>(matrix);
  if (precision_ == Precision::kBfloat16 && gelu)
    run(minilm_kernels_linear_gelu_bf16_workspace, minilm_kernels_linear_gelu_bf16, matrix);
  else if (precision_ == Precision::kBfloat16)
    run(minilm_kernels_linear_bf16_workspace, minilm_kernels_linear_bf16, matrix);
  else if (gelu)
    run(minilm_kernels_linear_gelu_workspace, minilm_kernels_linear_gelu, floats);
  else
    run(minilm_kernels_linear_workspace, minilm_kernels_linear, floats);
}

void CpuBackend::attend(Slot in, Slot out) {
  const float* qkv = slots_[in].data();
  executor_.call(
      [&](const tilec_exec* exec, std::size_t* size) {
        return minilm_kernels_attention_workspace(exec, batch_->tokens(), kHeads, kHeadDim, kHeads, batch_->sentences(),
                                                  kFused, kFused, size);
      },
      [&](const tilec_exec* exec) {
        return minilm_kernels_attention(exec, qkv, qkv + kHidden, qkv + 2 * kHidden, batch_->starts.data(),
                                        batch_->lengths.data(), batch_->longest, slots_[out].data(), batch_->tokens(),
                                        kHeads, kHeadDim, kHeads, batch_->sentences(), kFused, kFused);
      });
}

void CpuBackend::add_norm(Slot in, Slot residual, const void* gain, const void* shift, Slot out) {
  executor_.call(
      [&](const tilec_exec* exec, std::size_t* size) {
        return minilm_kernels_layernorm_residual_workspace(exec, batch_->tokens(), kHidden, kHidden, size);
      },
      [&](const tilec_exec* exec) {
        return minilm_kernels_layernorm_residual(exec, slots_[in].data(), slots_[residual].data(),
                                                 static_cast<const float*>(gain), static_cast<const float*>(shift),
                                                 slots_[out].data(), batch_->tokens(), kHidden, kHidden);
      });
}

const float* CpuBackend::pool(Slot in) {
  executor_.call(
      [&](const tilec_exec* exec, std::size_t* size) {
        return minilm_kernels_mean_pool_workspace(exec, batch_->tokens(), kHidden, batch_->sentences(), kHidden, size);
      },
      [&](const tilec_exec* exec) {
        return minilm_kernels_mean_pool(exec, slots_[in].data(), batch_->starts.data(), batch_->lengths.data(),
                                        vectors_.data(), batch_->tokens(), kHidden, batch_->sentences(), kHidden);
      });
  return vectors_.data();
}

}  // namespace minilm
