#include "encoder.hpp"

#include <stdexcept>
#include <string>

namespace minilm {

void Batch::add(const std::int32_t* tokens, std::int32_t length) {
  if (length < 1 || length > kPositions) throw std::invalid_argument("a sentence has 1 to 512 tokens");
  starts.push_back(static_cast<std::int32_t>(ids.size()));
  lengths.push_back(length);
  longest = length > longest ? length : longest;
  for (std::int32_t t = 0; t < length; ++t) {
    ids.push_back(tokens[t]);
    positions.push_back(t);
    types.push_back(0);
  }
}

void Batch::clear() {
  for (auto* column : {&ids, &positions, &types, &starts, &lengths}) column->clear();
  longest = 0;
}

Encoder::Encoder(const Safetensors& weights, std::uint32_t threads, Precision precision)
    : executor_(threads), precision_(precision), layers_(kLayers) {
  words_ = weights.f32("embeddings.word_embeddings.weight", {kVocabulary, kHidden});
  positions_ = weights.f32("embeddings.position_embeddings.weight", {kPositions, kHidden});
  types_ = weights.f32("embeddings.token_type_embeddings.weight", {kTypes, kHidden});
  embedding_gain_ = weights.f32("embeddings.LayerNorm.weight", {kHidden});
  embedding_shift_ = weights.f32("embeddings.LayerNorm.bias", {kHidden});
  panels_.reserve(kLayers * (panel_bytes(kFused + kHidden, kHidden) + 2 * panel_bytes(kInner, kHidden)));
  for (std::int64_t i = 0; i < kLayers; ++i)
    load_layer(weights, "encoder.layer." + std::to_string(i) + ".", layers_[static_cast<std::size_t>(i)]);
}

// Q, K and V become one product: their weights and their biases are packed one behind the other.
void Encoder::load_layer(const Safetensors& weights, const std::string& prefix, Layer& layer) {
  layer.qkv = panels_.data() + packed_;
  float* qkv_bias = layer.qkv_bias.reserve(kFused);
  for (const char* part : {"query", "key", "value"}) {
    const std::string name = prefix + "attention.self." + part;
    pack(weights.f32(name + ".weight", {kHidden, kHidden}), kHidden, kHidden);
    pack_bias(weights.f32(name + ".bias", {kHidden}), kHidden, qkv_bias);
    qkv_bias += kHidden;
  }
  layer.out = pack(weights.f32(prefix + "attention.output.dense.weight", {kHidden, kHidden}), kHidden, kHidden);
  layer.inner = pack(weights.f32(prefix + "intermediate.dense.weight", {kInner, kHidden}), kInner, kHidden);
  layer.outer = pack(weights.f32(prefix + "output.dense.weight", {kHidden, kInner}), kHidden, kInner);
  layer.out_bias = weights.f32(prefix + "attention.output.dense.bias", {kHidden});
  layer.inner_bias = weights.f32(prefix + "intermediate.dense.bias", {kInner});
  layer.outer_bias = weights.f32(prefix + "output.dense.bias", {kHidden});
  layer.attention_gain = weights.f32(prefix + "attention.output.LayerNorm.weight", {kHidden});
  layer.attention_shift = weights.f32(prefix + "attention.output.LayerNorm.bias", {kHidden});
  layer.output_gain = weights.f32(prefix + "output.LayerNorm.weight", {kHidden});
  layer.output_shift = weights.f32(prefix + "output.LayerNorm.bias", {kHidden});
}

std::size_t Encoder::panel_bytes(std::int64_t features, std::int64_t inputs) const {
  return static_cast<std::size_t>(features * inputs) * (precision_ == Precision::kBfloat16 ? 2 : sizeof(float));
}

// A bias is a weight with one input.
void Encoder::pack_bias(const float* bias, std::int64_t features, float* out) {
  executor_.call(
      [&](const tilec_exec* exec, std::size_t* size) {
        return minilm_kernels_pack_workspace(exec, features, 1, 1, size);
      },
      [&](const tilec_exec* exec) { return minilm_kernels_pack(exec, bias, out, features, 1, 1); });
}

// Packs behind what is packed already; returns where.
std::byte* Encoder::pack(const float* weight, std::int64_t features, std::int64_t inputs) {
  std::byte* panels = panels_.data() + packed_;
  packed_ += panel_bytes(features, inputs);
  if (precision_ == Precision::kBfloat16)
    executor_.call(
        [&](const tilec_exec* exec, std::size_t* size) {
          return minilm_kernels_pack_bf16_workspace(exec, features, inputs, inputs, size);
        },
        [&](const tilec_exec* exec) {
          return minilm_kernels_pack_bf16(exec, weight, panels, features, inputs, inputs);
        });
  else
    executor_.call(
        [&](const tilec_exec* exec, std::size_t* size) {
          return minilm_kernels_pack_workspace(exec, features, inputs, inputs, size);
        },
        [&](const tilec_exec* exec) {
          return minilm_kernels_pack(exec, weight, reinterpret_cast<float*>(panels), features, inputs, inputs);
        });
  return panels;
}

void Encoder::embed(const Batch& batch, float* out) {
  const auto tokens = static_cast<std::int64_t>(batch.ids.size());
  executor_.call(
      [&](const tilec_exec* exec, std::size_t* size) {
        return minilm_kernels_embed_workspace(exec, tokens, kVocabulary, kHidden, kPositions, kTypes, size);
      },
      [&](const tilec_exec* exec) {
        return minilm_kernels_embed(exec, batch.ids.data(), batch.positions.data(), batch.types.data(), words_,
                                    positions_, types_, embedding_gain_, embedding_shift_, out, tokens, kVocabulary,
                                    kHidden, kPositions, kTypes);
      });
}

namespace {

// One product through the doors of a kernel whose panels are of type P (void: bfloat16 has no type of its own in C).
template <typename P, typename Size, typename Kernel>
void product(Executor& executor, Size size_of, Kernel kernel, const float* in, const std::byte* panels, const float* bias,
             float* out, std::int64_t tokens, std::int64_t inputs, std::int64_t features) {
  executor.call(
      [&](const tilec_exec* exec, std::size_t* size) { return size_of(exec, tokens, inputs, features, size); },
      [&](const tilec_exec* exec) {
        const void* weights = panels;
        return kernel(exec, in, static_cast<const P*>(weights), bias, out, tokens, inputs, features);
      });
}

}  // namespace

void Encoder::linear(const float* in, const std::byte* panels, const float* bias, float* out, std::int64_t tokens,
                     std::int64_t inputs, std::int64_t features) {
  if (precision_ == Precision::kBfloat16)
    product<void>(executor_, minilm_kernels_linear_bf16_workspace, minilm_kernels_linear_bf16, in, panels, bias, out,
                  tokens, inputs, features);
  else
    product<float>(executor_, minilm_kernels_linear_workspace, minilm_kernels_linear, in, panels, bias, out, tokens,
                   inputs, features);
}

void Encoder::linear_gelu(const float* in, const std::byte* panels, const float* bias, float* out, std::int64_t tokens,
                          std::int64_t inputs, std::int64_t features) {
  if (precision_ == Precision::kBfloat16)
    product<void>(executor_, minilm_kernels_linear_gelu_bf16_workspace, minilm_kernels_linear_gelu_bf16, in, panels,
                  bias, out, tokens, inputs, features);
  else
    product<float>(executor_, minilm_kernels_linear_gelu_workspace, minilm_kernels_linear_gelu, in, panels, bias, out,
                   tokens, inputs, features);
}

// Queries, keys and values are the three thirds of each row of `qkv`.
void Encoder::attend(const Batch& batch, const float* qkv, float* out) {
  const auto tokens = static_cast<std::int64_t>(batch.ids.size());
  const auto sentences = static_cast<std::int64_t>(batch.starts.size());
  executor_.call(
      [&](const tilec_exec* exec, std::size_t* size) {
        return minilm_kernels_attention_workspace(exec, tokens, kHeads, kHeadDim, kHeads, sentences, kFused, kFused,
                                                  size);
      },
      [&](const tilec_exec* exec) {
        return minilm_kernels_attention(exec, qkv, qkv + kHidden, qkv + 2 * kHidden, batch.starts.data(),
                                        batch.lengths.data(), batch.longest, out, tokens, kHeads, kHeadDim, kHeads,
                                        sentences, kFused, kFused);
      });
}

void Encoder::add_norm(const float* in, const float* residual, const float* gain, const float* shift, float* out,
                       std::int64_t tokens) {
  executor_.call(
      [&](const tilec_exec* exec, std::size_t* size) {
        return minilm_kernels_layernorm_residual_workspace(exec, tokens, kHidden, kHidden, size);
      },
      [&](const tilec_exec* exec) {
        return minilm_kernels_layernorm_residual(exec, in, residual, gain, shift, out, tokens, kHidden, kHidden);
      });
}

void Encoder::pool(const Batch& batch, float* out) {
  const auto tokens = static_cast<std::int64_t>(batch.ids.size());
  const auto sentences = static_cast<std::int64_t>(batch.starts.size());
  executor_.call(
      [&](const tilec_exec* exec, std::size_t* size) {
        return minilm_kernels_mean_pool_workspace(exec, tokens, kHidden, sentences, kHidden, size);
      },
      [&](const tilec_exec* exec) {
        return minilm_kernels_mean_pool(exec, stream_.data(), batch.starts.data(), batch.lengths.data(), out, tokens,
                                        kHidden, sentences, kHidden);
      });
}

void Encoder::run_layer(const Batch& batch, const Layer& layer) {
  const auto tokens = static_cast<std::int64_t>(batch.ids.size());
  linear(stream_.data(), layer.qkv, layer.qkv_bias.data(), fused_.data(), tokens, kHidden, kFused);
  attend(batch, fused_.data(), context_.data());
  linear(context_.data(), layer.out, layer.out_bias, projected_.data(), tokens, kHidden, kHidden);
  add_norm(projected_.data(), stream_.data(), layer.attention_gain, layer.attention_shift, attended_.data(), tokens);
  linear_gelu(attended_.data(), layer.inner, layer.inner_bias, inner_.data(), tokens, kHidden, kInner);
  linear(inner_.data(), layer.outer, layer.outer_bias, projected_.data(), tokens, kInner, kHidden);
  add_norm(projected_.data(), attended_.data(), layer.output_gain, layer.output_shift, stream_.data(), tokens);
}

const float* Encoder::encode(const Batch& batch) {
  const std::size_t tokens = batch.ids.size();
  for (AlignedBuffer<float>* buffer : {&stream_, &attended_, &context_, &projected_}) buffer->reserve(tokens * kHidden);
  fused_.reserve(tokens * kFused);
  inner_.reserve(tokens * kInner);
  float* vectors = vectors_.reserve(batch.starts.size() * kHidden);
  embed(batch, stream_.data());
  for (const Layer& layer : layers_) run_layer(batch, layer);
  pool(batch, vectors);
  return vectors;
}

}  // namespace minilm
