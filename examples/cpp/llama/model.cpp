#include "model.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "numbers.hpp"
#include "rope.hpp"

namespace llama {
namespace {

// Rows of activations from which on it is faster to unpack weights of 4 bits first: measured on an AMD EPYC (Zen 5).
constexpr std::int64_t kUnpackedFrom = 16;

}  // namespace

Model::Model(const std::string& folder, Precision precision, std::int64_t pages, Device& device)
    : config_(Config::read(folder)),
      precision_(precision),
      type_(precision.type),
      device_(device),
      kernels_(device),
      weights_(Checkpoint(folder), config_, precision, device),
      cache_(config_, precision.type, pages, device),
      positions_(std::min(config_.positions, pages * kPage)),
      buffers_(kCount, Buffer(device)) {
  const RopeTables tables(config_, positions_);
  const std::size_t bytes = tables.cos.size() * sizeof(float);
  cos_ = device.allocate(bytes);
  sin_ = device.allocate(bytes);
  device.upload(cos_, tables.cos.data(), bytes);
  device.upload(sin_, tables.sin.data(), bytes);
  norm("rmsnorm");  // refuses an eps that there is no kernel for
}

// ---- memory of a step ----

void* Model::room(Slot slot, std::int64_t elements, Type type) {
  return buffers_[slot].reserve(static_cast<std::size_t>(elements * bytes_of(type)));
}

Tensor Model::upload(Slot slot, const std::vector<std::int32_t>& numbers, std::initializer_list<std::int64_t> shape) {
  void* to = room(slot, static_cast<std::int64_t>(numbers.size()), Type::kInt32);
  device_.upload(to, numbers.data(), numbers.size() * sizeof(std::int32_t));
  return {to, Type::kInt32, shape};
}

Tensor Model::rows(Slot slot, std::int64_t columns) {
  return {room(slot, tokens_ * columns, type_), type_, {tokens_, columns}};
}

std::string Model::norm(const char* name) const {
  if (config_.eps == 1e-5) return kernel((std::string(name) + "_e5").c_str());
  if (config_.eps == 1e-6) return kernel((std::string(name) + "_e6").c_str());
  throw std::runtime_error("config.json: rms_norm_eps is neither 1e-5 nor 1e-6, for which llama.toml has norms");
}

// ---- one step ----

const std::vector<float>& Model::run(const Step& step) {
  tokens_ = step.tokens();
  const Places places = upload_places(step);
  embed(step);
  for (std::size_t i = 0; i < weights_.layers.size(); ++i) {
    const Layer& layer = weights_.layers[i];
    attend(places, layer, i);
    add_and_norm(layer.inner_gain);
    feed_forward(layer);
    const bool is_last = i + 1 == weights_.layers.size();
    add_and_norm(is_last ? weights_.last_gain : weights_.layers[i + 1].input_gain);
  }
  return logits(step);
}

void Model::embed(const Step& step) {
  const std::int64_t hidden = config_.hidden;
  kernels_.call(kernel("embedding"), {upload(kIds, step.ids, {tokens_}),
                                      Tensor(weights_.embeddings, type_, {config_.vocabulary, hidden}),
                                      rows(kStream, hidden)});
  kernels_.call(norm("rmsnorm"),
                {rows(kStream, hidden), gain(weights_.layers.front().input_gain, hidden), rows(kNormed, hidden)});
}

void Model::linear(Tensor in, const Matrix& matrix, Tensor out) {
  const std::int64_t blocks = matrix.inputs / kQ4Block;
  const Tensor weights(matrix.data, type_, {matrix.features, matrix.inputs});
  const Tensor stored(matrix.data, Type::kByte, {matrix.features, blocks, kQ4Bytes});
  if (!precision_.q4) return kernels_.call(kernel("linear"), {in, weights, out});
  if (in.rows() < kUnpackedFrom) return kernels_.call("linear_q4_0", {in, stored, out});
  void* unpacked = room(kUnpacked, matrix.features * matrix.inputs, type_);
  kernels_.call("unpack_q4_0", {stored, Tensor(unpacked, type_, {matrix.features, blocks, 2, kQ4Block / 2})});
  kernels_.call(kernel("linear"), {in, Tensor(unpacked, type_, {matrix.features, matrix.inputs}), out});
}

Model::Places Model::upload_places(const Step& step) {
  const std::int64_t sequences = step.sequences();
  return {upload(kPositions, step.positions, {tokens_}),
          upload(kSlots, step.slots, {tokens_}),
          upload(kTable, step.table(), {sequences, step.longest()}),
          upload(kBounds, step.bounds, {sequences + 1}),
          upload(kLengths, step.lengths, {sequences}),
          step.most()};
}

void Model::attend(const Places& places, const Layer& layer, std::size_t number) {
  const std::int64_t fused = config_.fused_heads(), dim = config_.head_dim, heads = config_.heads;
  const std::int64_t shared = config_.key_heads, pages = cache_.pages();
  const Tensor keys(cache_.keys(number), type_, {pages, shared, kPage, dim});
  const Tensor values(cache_.values(number), type_, {pages, shared, kPage, dim});
  const Tensor cos(cos_, Type::kFloat32, {positions_, dim / 2}), sin(sin_, Type::kFloat32, {positions_, dim / 2});
  linear(rows(kNormed, config_.hidden), layer.qkv, rows(kQkv, fused * dim));
  void* queries = room(kQueries, tokens_ * heads * dim, type_);
  kernels_.call(kernel(config_.qk_norm ? "rotary_to_cache_normed" : "rotary_to_cache"),
                {Tensor(room(kQkv, tokens_ * fused * dim, type_), type_, {tokens_, fused, dim}),
                 Tensor(layer.qkv_bias, type_, {fused, dim}), gain(layer.q_gain, dim), gain(layer.k_gain, dim),
                 static_cast<float>(config_.eps), cos, sin, places.positions,
                 places.slots, Tensor(queries, type_, {tokens_, heads, dim}), keys, values});
  const std::int64_t group = config_.group();
  const std::int64_t window = config_.window != 0 ? config_.window : positions_;
  void* context = room(kContext, tokens_ * heads * dim, type_);
  kernels_.call(kernel("attention_paged"),
                {Tensor(queries, type_, {tokens_, shared, group, dim}), keys, values, places.table, places.bounds,
                 places.lengths, static_cast<std::int32_t>(window), places.most,
                 Tensor(context, type_, {tokens_, shared, group, dim})});
  linear(rows(kContext, heads * dim), layer.out, rows(kProjected, config_.hidden));
}

void Model::feed_forward(const Layer& layer) {
  const std::int64_t inner = config_.inner;
  linear(rows(kNormed, config_.hidden), layer.gate_up, rows(kGateUp, 2 * inner));
  const char* fused = static_cast<const char*>(room(kGateUp, tokens_ * 2 * inner, type_));
  kernels_.call(kernel("silu_mul"), {Tensor(fused, type_, {tokens_, inner}, {2 * inner, 1}),
                                     Tensor(fused + inner * bytes_of(type_), type_, {tokens_, inner}, {2 * inner, 1}),
                                     rows(kInner, inner)});
  linear(rows(kInner, inner), layer.down, rows(kProjected, config_.hidden));
}

void Model::add_and_norm(const void* weight) {
  const std::int64_t hidden = config_.hidden;
  kernels_.call(norm("add_rmsnorm"), {rows(kProjected, hidden), rows(kStream, hidden), gain(weight, hidden),
                                      rows(kNormed, hidden), rows(kNextStream, hidden)});
  std::swap(buffers_[kStream], buffers_[kNextStream]);
}

const std::vector<float>& Model::logits(const Step& step) {
  const auto asked = static_cast<std::int64_t>(step.rows.size());
  logits_.resize(static_cast<std::size_t>(asked * config_.vocabulary));
  if (asked == 0) return logits_;
  const Tensor last(room(kLast, asked * config_.hidden, type_), type_, {asked, config_.hidden});
  void* out = room(kLogits, asked * config_.vocabulary, type_);
  kernels_.call(kernel("embedding"), {upload(kRows, step.rows, {asked}), rows(kNormed, config_.hidden), last});
  linear(last, weights_.head, Tensor(out, type_, {asked, config_.vocabulary}));
  if (type_ == Type::kFloat32) {
    device_.download(logits_.data(), out, logits_.size() * sizeof(float));
    return logits_;
  }
  words_.resize(logits_.size());
  device_.download(words_.data(), out, words_.size() * sizeof(std::uint16_t));
  std::transform(words_.begin(), words_.end(), logits_.begin(), from_bfloat16);
  return logits_;
}

}  // namespace llama
