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

// Sizes of batches and tables that steps are recorded for; rows of tables start at multiples of 16 bytes.
std::int64_t power_of_two_from(std::int64_t least) {
  std::int64_t power = 1;
  while (power < least) power *= 2;
  return power;
}

std::int64_t padded(std::int64_t sequences) {
  return sequences <= 8 ? power_of_two_from(sequences) : (sequences + 7) / 8 * 8;
}

std::int64_t table_width(const Step& step) { return power_of_two_from(std::max<std::int64_t>(step.longest(), 4)); }

}  // namespace

Model::Model(const std::string& folder, Precision precision, std::int64_t pages, Device& device, Share share)
    : share_(share),
      config_(Config::read(folder).split(share.ranks)),
      type_(precision.type),
      device_(device),
      kernels_(device),
      precision_(precision.on(kernels_)),
      weights_(checkpoint::Checkpoint(folder), config_, precision_, device, share),
      cache_(config_, precision.cache, pages, device),
      positions_(std::min(config_.positions, pages * kPage)),
      most_rows_(padded(pages)),
      plain_(device) {
  const RopeTables tables(config_, positions_);
  const std::size_t bytes = tables.cos.size() * sizeof(float);
  const std::size_t sampled = static_cast<std::size_t>(most_rows_) * sizeof(std::int32_t);
  cos_ = device.allocate(bytes);
  sin_ = device.allocate(bytes);
  device.upload(cos_, tables.cos.data(), bytes);
  device.upload(sin_, tables.sin.data(), bytes);
  chosen_ = device.allocate(sampled);
  landed_ = static_cast<std::int32_t*>(device.allocate_host(sampled * static_cast<std::size_t>(device.ahead() + 1)));
  norm("rmsnorm");  // refuses an eps that there is no kernel for
  choose_attention();
}

// ---- memory of a step ----

void* Model::room(Slot slot, std::int64_t elements, Type type) {
  return rooms_->buffers[slot].reserve(static_cast<std::size_t>(elements * bytes_of(type)));
}

Tensor Model::rows(Slot slot, std::int64_t columns) {
  return {room(slot, shape_.tokens * columns, type_), type_, {shape_.tokens, columns}};
}

Tensor Model::rounded(std::int64_t count, std::int64_t inputs) {
  return {room(kRounded, count * inputs, Type::kFloat8), Type::kFloat8, {count, inputs}};
}

Tensor Model::numbers(Number which, std::initializer_list<std::int64_t> shape, Type type, std::int64_t from) const {
  const auto* all = static_cast<const std::int32_t*>(rooms_->buffers[kNumbers].data());
  return {all + offsets_[which] + from, type, shape};
}

std::string Model::norm(const char* name) const {
  if (config_.eps == 1e-5) return kernel((std::string(name) + "_e5").c_str());
  if (config_.eps == 1e-6) return kernel((std::string(name) + "_e6").c_str());
  throw std::runtime_error("config.json: rms_norm_eps is neither 1e-5 nor 1e-6, for which llama.toml has norms");
}

void Model::measure(const Step& step) {
  const std::int64_t singles = splits_ ? step.singles() : 0;
  const auto rows = static_cast<std::int64_t>(step.rows.size());
  shape_ = {step.tokens(), step.sequences(), rows, table_width(step), singles, 0, 0, 0};
  for (auto i = static_cast<std::size_t>(singles); i < step.lengths.size(); ++i) {
    shape_.keys += step.lengths[i];
    shape_.most = std::max(shape_.most, step.bounds[i + 1] - step.bounds[i]);
    shape_.most_keys = std::max(shape_.most_keys, step.lengths[i]);
  }
}

void Model::upload(const Step& step) {
  measure(step);
  joined_.clear();
  const auto add = [&](Number which, const std::vector<std::int32_t>& numbers) {
    offsets_[which] = joined_.size();
    joined_.insert(joined_.end(), numbers.begin(), numbers.end());
    joined_.resize((joined_.size() + kAligned - 1) / kAligned * kAligned);
  };
  add(kGiven, step.ids), add(kPositions, step.positions), add(kPlaces, step.slots), add(kLengths, step.lengths);
  add(kTable, step.table(shape_.width)), add(kRows, step.rows);
  add(kBounds, step.bounds_behind(shape_.singles)), add(kKeyBounds, step.key_bounds_behind(shape_.singles));
  add(kTemperature, step.temperatures), add(kTopK, step.top_ks), add(kTopP, step.top_ps);
  add(kSeeds, step.seeds), add(kDraws, step.draws);
  void* to = room(kNumbers, static_cast<std::int64_t>(joined_.size()), Type::kInt32);
  device_.upload(to, joined_.data(), joined_.size() * sizeof(std::int32_t));
}

// ---- one step ----

const std::vector<float>& Model::run(const Step& step) {
  rooms_ = &plain_;
  upload(step);
  forward();
  const std::int64_t count = shape_.rows * config_.vocabulary;
  logits_.resize(static_cast<std::size_t>(count));
  if (count == 0) return logits_;
  score();
  const void* found = rooms_->buffers[kLogits].data();
  stored_.resize(logits_.size() * static_cast<std::size_t>(bytes_of(type_)));
  device_.download(stored_.data(), found, stored_.size());
  to_float32(stored_name(type_), stored_.data(), logits_.size(), logits_.data());
  return logits_;
}

// Steps in which all sequences decode are recorded: the first of its size is made call by call and sizes the memory.
void Model::start(const Step& step) {
  const std::size_t sampled = step.rows.size();
  const bool is_recorded = device_.ahead() > 0 && step.singles() == step.sequences() && sampled == step.ids.size();
  Step filled = step;
  if (is_recorded) filled.pad(padded(step.sequences()), cache_.pages());
  const std::pair<std::int64_t, std::int64_t> size(filled.sequences(), table_width(filled));
  rooms_ = is_recorded ? &recorded_.try_emplace(size, device_).first->second : &plain_;
  upload(filled);
  const std::int64_t begin = device_.mark();
  const auto calls = [&] { forward(), sample(); };
  if (rooms_->is_sized && !rooms_->record) rooms_->record = device_.record(calls);
  rooms_->record ? rooms_->record() : calls();
  rooms_->is_sized = is_recorded;
  const std::int64_t end = device_.mark();
  device_.fetch(landing(steps_), chosen_, sampled * sizeof(std::int32_t));
  started_.push_back({begin, end, device_.mark(), steps_++, sampled});
}

Sampled Model::finish() {
  const Started step = started_.front();
  started_.pop_front();
  device_.wait(step.landed);
  const std::int32_t* ids = landing(step.number);
  const double gap = step.number == 0 ? 0 : device_.seconds(last_end_, step.begin);
  last_end_ = step.end;
  return {{ids, ids + step.rows}, gap};
}

void Model::forward() {
  embed();
  for (std::size_t i = 0; i < weights_.layers.size(); ++i) {
    const Layer& layer = weights_.layers[i];
    attend(layer, i);
    add_and_norm(layer.inner_gain, layer.router.data == nullptr);
    feed_forward(layer);
    const bool is_last = i + 1 == weights_.layers.size();
    add_and_norm(is_last ? weights_.last_gain : weights_.layers[i + 1].input_gain, !is_last);
  }
}

void Model::embed() {
  const std::int64_t hidden = config_.hidden, tokens = shape_.tokens;
  const Tensor ids(room(kIds, tokens, Type::kInt32), Type::kInt32, {tokens});
  kernels_.call("resolve", {numbers(kGiven, {tokens}), Tensor(chosen_, Type::kInt32, {most_rows_}), ids});
  kernels_.call(kernel("embedding"),
                {ids, Tensor(weights_.embeddings, type_, {config_.vocabulary, hidden}), rows(kStream, hidden)});
  kernels_.call(norm("rmsnorm"),
                {rows(kStream, hidden), gain(weights_.layers.front().input_gain, hidden), rows(kNormed, hidden)});
}

std::pair<Tensor, Tensor> Model::round_rows(Tensor in, std::int64_t inputs) {
  const Tensor read = rounded(in.rows(), inputs), by = rounded_by(in.rows());
  if (in.type() != Type::kFloat8) kernels_.call("round_rows", {in, read, by});
  return {read, by};
}

void Model::linear(Tensor in, const Matrix& matrix, Tensor out) {
  const std::int64_t blocks = matrix.inputs / kQ4Block;
  const Tensor weights(matrix.data, type_, {matrix.features, matrix.inputs});
  const Tensor stored(matrix.data, Type::kByte, {matrix.features, blocks, kQ4Bytes});
  if (precision_.form == Form::kPlain) return kernels_.call(kernel("linear"), {in, weights, out});
  if (rounds()) {
    const auto [read, by] = round_rows(in, matrix.inputs);
    return kernels_.call("linear_fp8", {read, Tensor(matrix.data, Type::kFloat8, {matrix.features, matrix.inputs}), by,
                                        Tensor(matrix.scales, Type::kFloat32, {matrix.features}), out});
  }
  if (precision_.form == Form::kQ4Packed) {
    const Tensor packed(matrix.data, Type::kByte, {matrix.features, matrix.inputs / 2});
    return kernels_.call("linear_packed", {in, packed, Tensor(matrix.scales, type_, {blocks, matrix.features}), out});
  }
  if (in.rows() < kUnpackedFrom) return kernels_.call("linear_q4_0", {in, stored, out});
  void* unpacked = room(kUnpacked, matrix.features * matrix.inputs, type_);
  kernels_.call("unpack_q4_0", {stored, Tensor(unpacked, type_, {matrix.features, blocks, 2, kQ4Block / 2})});
  kernels_.call(kernel("linear"), {in, Tensor(unpacked, type_, {matrix.features, matrix.inputs}), out});
}

void Model::add_and_norm(const void* weight, bool is_for_products) {
  const std::int64_t hidden = config_.hidden;
  if (share_.ranks > 1)
    share_.group->sum(share_.rank, room(kProjected, shape_.tokens * hidden, type_), shape_.tokens * hidden, type_, device_.exec());
  const Tensor projected = rows(kProjected, hidden), stream = rows(kStream, hidden), next = rows(kNextStream, hidden);
  if (rounds() && is_for_products)
    kernels_.call(norm("add_rmsnorm_rounded"),
                  {projected, stream, gain(weight, hidden), normed(), rounded_by(shape_.tokens), next});
  else
    kernels_.call(norm("add_rmsnorm"), {projected, stream, gain(weight, hidden), rows(kNormed, hidden), next});
  std::swap(rooms_->buffers[kStream], rooms_->buffers[kNextStream]);
}

Tensor Model::score() {
  const std::int64_t count = shape_.rows, hidden = config_.hidden;
  const Tensor scores(room(kLogits, count * config_.vocabulary, type_), type_, {count, config_.vocabulary});
  if (count == shape_.tokens) return linear(rows(kNormed, hidden), weights_.head, scores), scores;
  const Tensor last(room(kLast, count * hidden, type_), type_, {count, hidden});
  kernels_.call(kernel("embedding"), {numbers(kRows, {count}), rows(kNormed, hidden), last});
  return linear(last, weights_.head, scores), scores;
}

void Model::sample() {
  const std::int64_t count = shape_.rows;
  if (count == 0) return;
  kernels_.call(kernel("sample"),
                {score(), numbers(kTemperature, {count}, Type::kFloat32), numbers(kTopK, {count}),
                 numbers(kTopP, {count}, Type::kFloat32), numbers(kSeeds, {count, 2}), numbers(kDraws, {count}),
                 Tensor(chosen_, Type::kInt32, {count})});
}

}  // namespace llama
