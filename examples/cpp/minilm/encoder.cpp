#include "encoder.hpp"

#include <stdexcept>
#include <utility>

namespace minilm {
namespace {

// The numbers of a tensor in the mapped file. Throws std::runtime_error.
const float* float32(const checkpoint::Checkpoint& weights, const std::string& name, const std::vector<std::int64_t>& shape) {
  const checkpoint::StoredTensor& tensor = weights.get(name, shape);
  if (tensor.dtype != "F32") throw std::runtime_error(name + " is of type " + tensor.dtype + ": F32 is read");
  return reinterpret_cast<const float*>(tensor.bytes.data());
}

}  // namespace

Encoder::Encoder(const checkpoint::Checkpoint& weights, std::unique_ptr<Backend> backend) : backend_(std::move(backend)) {
  const auto table = [&](const std::string& name, std::int64_t rows) {
    return backend_->vector({float32(weights, "embeddings." + name + "_embeddings.weight", {rows, kHidden})}, rows * kHidden);
  };
  const auto norm = [&](const std::string& leaf) {
    return backend_->vector({float32(weights, "embeddings.LayerNorm." + leaf, {kHidden})}, kHidden);
  };
  tables_ = {table("word", kVocabulary), table("position", kPositions), table("token_type", kTypes), norm("weight"),
             norm("bias")};
  for (std::int64_t i = 0; i < kLayers; ++i)
    layers_.push_back(load_layer(weights, "encoder.layer." + std::to_string(i) + "."));
}

// Q, K and V become one product: their weights and their biases are stacked.
Layer Encoder::load_layer(const checkpoint::Checkpoint& weights, const std::string& prefix) {
  const auto matrix = [&](const std::string& name, std::int64_t features, std::int64_t inputs) {
    return float32(weights, prefix + name + ".weight", {features, inputs});
  };
  const auto bias = [&](const std::string& name, std::int64_t features) {
    return float32(weights, prefix + name + ".bias", {features});
  };
  const auto gain = [&](const std::string& name) {
    return backend_->vector({float32(weights, prefix + name + ".weight", {kHidden})}, kHidden);
  };
  const std::string q = "attention.self.query", k = "attention.self.key", v = "attention.self.value";
  const std::string out = "attention.output.dense", inner = "intermediate.dense", outer = "output.dense";
  Layer layer;
  layer.qkv = backend_->matrix(
      {matrix(q, kHidden, kHidden), matrix(k, kHidden, kHidden), matrix(v, kHidden, kHidden)}, kHidden, kHidden);
  layer.out = backend_->matrix({matrix(out, kHidden, kHidden)}, kHidden, kHidden);
  layer.inner = backend_->matrix({matrix(inner, kInner, kHidden)}, kInner, kHidden);
  layer.outer = backend_->matrix({matrix(outer, kHidden, kInner)}, kHidden, kInner);
  layer.qkv_bias = backend_->vector({bias(q, kHidden), bias(k, kHidden), bias(v, kHidden)}, kHidden);
  layer.out_bias = backend_->vector({bias(out, kHidden)}, kHidden);
  layer.inner_bias = backend_->vector({bias(inner, kInner)}, kInner);
  layer.outer_bias = backend_->vector({bias(outer, kHidden)}, kHidden);
  layer.attention_gain = gain("attention.output.LayerNorm");
  layer.attention_shift = backend_->vector({bias("attention.output.LayerNorm", kHidden)}, kHidden);
  layer.output_gain = gain("output.LayerNorm");
  layer.output_shift = backend_->vector({bias("output.LayerNorm", kHidden)}, kHidden);
  return layer;
}

void Encoder::run_layer(const Layer& layer) {
  backend_->linear(kStream, layer.qkv, layer.qkv_bias, kWide, kHidden, kFused);
  backend_->attend(kWide, kContext);
  backend_->linear(kContext, layer.out, layer.out_bias, kProjected, kHidden, kHidden);
  backend_->add_norm(kProjected, kStream, layer.attention_gain, layer.attention_shift, kAttended);
  backend_->linear(kAttended, layer.inner, layer.inner_bias, kInnerRows, kHidden, kInner, true);
  backend_->linear(kInnerRows, layer.outer, layer.outer_bias, kProjected, kInner, kHidden);
  backend_->add_norm(kProjected, kAttended, layer.output_gain, layer.output_shift, kStream);
}

const float* Encoder::encode(const Batch& batch) {
  backend_->begin(batch);
  backend_->embed(tables_, kStream);
  for (const Layer& layer : layers_) run_layer(layer);
  return backend_->pool(kStream);
}

}  // namespace minilm
