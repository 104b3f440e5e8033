// all-MiniLM-L6-v2 as calls into one tilec library.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend.hpp"
#include "checkpoint/safetensors.hpp"

namespace minilm {

// Weights of one encoder layer, in the backend's memory.
struct Layer {
  const void *qkv, *out, *inner, *outer;
  const void *qkv_bias, *out_bias, *inner_bias, *outer_bias;
  const void *attention_gain, *attention_shift, *output_gain, *output_shift;
};

class Encoder {
 public:
  // Hands the weights to the backend. `weights` must outlive the encoder.
  Encoder(const checkpoint::Checkpoint& weights, std::unique_ptr<Backend> backend);

  // Unit sentence vectors, sentences x kHidden, valid until the next call.
  const float* encode(const Batch& batch);

 private:
  Layer load_layer(const checkpoint::Checkpoint& weights, const std::string& prefix);
  void run_layer(const Layer& layer);

  std::unique_ptr<Backend> backend_;
  Tables tables_;
  std::vector<Layer> layers_;
};

}  // namespace minilm
