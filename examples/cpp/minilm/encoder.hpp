// all-MiniLM-L6-v2 as calls into one tilec library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "executor.hpp"
#include "safetensors.hpp"

namespace minilm {

// The shape of the model.
constexpr std::int64_t kHidden = 384, kInner = 1536, kHeads = 12, kHeadDim = 32, kLayers = 6;
constexpr std::int64_t kVocabulary = 30522, kPositions = 512, kTypes = 2, kFused = 3 * kHidden;

// Sentences back to back, without padding: rows starts[b] to starts[b] + lengths[b] - 1 belong to sentence b.
struct Batch {
  std::vector<std::int32_t> ids, positions, types;  // one per token
  std::vector<std::int32_t> starts, lengths;        // one per sentence
  std::int32_t longest = 0;

  // Appends a sentence of token ids. Throws std::invalid_argument when it is empty or longer than kPositions.
  void add(const std::int32_t* tokens, std::int32_t length);
  void clear();
};

// What the weights of the products are stored in and both of their operands rounded to; sums, activations and
// everything else are float32 in either case.
enum class Precision { kFloat32, kBfloat16 };

// Weights of one encoder layer. Matrices are packed panels in the encoder's memory; the rest points into the
// mapped file.
struct Layer {
  const std::byte *qkv, *out, *inner, *outer;
  AlignedBuffer<float> qkv_bias;
  const float *out_bias, *inner_bias, *outer_bias;
  const float *attention_gain, *attention_shift, *output_gain, *output_shift;
};

class Encoder {
 public:
  // Packs the weights. `weights` must outlive the encoder.
  Encoder(const Safetensors& weights, std::uint32_t threads, Precision precision);

  // Unit sentence vectors, sentences x kHidden, valid until the next call.
  const float* encode(const Batch& batch);

 private:
  std::size_t panel_bytes(std::int64_t features, std::int64_t inputs) const;
  void pack_bias(const float* bias, std::int64_t features, float* out);
  std::byte* pack(const float* weight, std::int64_t features, std::int64_t inputs);
  void load_layer(const Safetensors& weights, const std::string& prefix, Layer& layer);
  void embed(const Batch& batch, float* out);
  void attend(const Batch& batch, const float* qkv, float* out);
  void linear(const float* in, const std::byte* panels, const float* bias, float* out, std::int64_t tokens,
              std::int64_t inputs, std::int64_t features);
  void linear_gelu(const float* in, const std::byte* panels, const float* bias, float* out, std::int64_t tokens,
                   std::int64_t inputs, std::int64_t features);
  void add_norm(const float* in, const float* residual, const float* gain, const float* shift, float* out,
                std::int64_t tokens);
  void run_layer(const Batch& batch, const Layer& layer);
  void pool(const Batch& batch, float* out);

  Executor executor_;
  Precision precision_;
  const float *words_, *positions_, *types_, *embedding_gain_, *embedding_shift_;
  std::vector<Layer> layers_;
  AlignedBuffer<std::byte> panels_;  // of all layers, in the order of use
  std::size_t packed_ = 0;           // bytes of panels_ in use
  AlignedBuffer<float> stream_, attended_, fused_, context_, projected_, inner_, vectors_;
};

}  // namespace minilm
