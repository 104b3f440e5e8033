// Attention of a step: over the pages of any sequences, or, where the library has them, by a kernel for sequences of one
// token, whose keys it splits, and one for the others, whose keys are brought together first.
#include "model.hpp"

namespace llama {

// The cache's own type behind that of activations, where it has one.
std::string Model::cached_kernel(const char* name) const {
  return kernel(name) + (precision_.cache == Type::kFloat8 ? "_fp8" : "");
}

Tensor Model::cached(const void* data) const {
  return {data, precision_.cache, {cache_.pages(), config_.key_heads, kPage, config_.head_dim}};
}

// The same pages by token, then head.
Tensor Model::cached_by_row(const void* data) const {
  const std::int64_t heads = config_.key_heads, dim = config_.head_dim;
  return {data, precision_.cache, {cache_.pages(), kPage, heads, dim}, {heads * kPage * dim, dim, kPage * dim, 1}};
}

Tensor Model::grouped(const void* data, std::int64_t tokens) const {
  return {data, type_, {tokens, config_.key_heads, config_.group(), config_.head_dim}};
}

// Neither of the two kernels has windows.
void Model::choose_attention() {
  const Tensor one(nullptr, Type::kInt32, {1}), table(nullptr, Type::kInt32, {1, 1});
  splits_ = config_.window == 0 &&
            kernels_.serves(cached_kernel("decode_paged"), {grouped(nullptr, 1), cached_by_row(nullptr), cached_by_row(nullptr),
                                                     table, one, grouped(nullptr, 1)});
}

void Model::attend(const Layer& layer, std::size_t number) {
  const std::int64_t fused = config_.fused_heads(), dim = config_.head_dim, heads = config_.heads, tokens = shape_.tokens;
  const Tensor cos(cos_, Type::kFloat32, {positions_, dim / 2}), sin(sin_, Type::kFloat32, {positions_, dim / 2});
  linear(number == 0 ? rows(kNormed, config_.hidden) : normed(), layer.qkv, rows(kQkv, fused * dim));
  char* queries = static_cast<char*>(room(kQueries, tokens * heads * dim, type_));
  char* context = static_cast<char*>(room(kContext, tokens * heads * dim, type_));
  kernels_.call(cached_kernel(config_.qk_norm ? "rotary_to_cache_normed" : "rotary_to_cache"),
                {Tensor(room(kQkv, tokens * fused * dim, type_), type_, {tokens, fused, dim}),
                 Tensor(layer.qkv_bias, type_, {fused, dim}), gain(layer.q_gain, dim), gain(layer.k_gain, dim),
                 static_cast<float>(config_.eps), cos, sin, numbers(kPositions, {tokens}), numbers(kPlaces, {tokens}),
                 Tensor(queries, type_, {tokens, heads, dim}), cached(cache_.keys(number)),
                 cached(cache_.values(number))});
  if (shape_.singles != 0) attend_singles(number, queries, context);
  const std::int64_t others = shape_.singles * heads * dim * bytes_of(type_);
  if (shape_.singles != shape_.sequences)
    splits_ ? attend_gathered(number, queries + others, context + others) : attend_paged(number, queries, context);
  linear(rows(kContext, heads * dim), layer.out, rows(kProjected, config_.hidden));
}

void Model::attend_paged(std::size_t layer, const void* queries, void* context) {
  const std::int64_t sequences = shape_.sequences, window = config_.window != 0 ? config_.window : positions_;
  kernels_.call(cached_kernel("attention_paged"),
                {grouped(queries, shape_.tokens), cached(cache_.keys(layer)), cached(cache_.values(layer)),
                 numbers(kTable, {sequences, shape_.width}), numbers(kBounds, {sequences + 1}),
                 numbers(kLengths, {sequences}), static_cast<std::int32_t>(window), shape_.most,
                 grouped(context, shape_.tokens)});
}

void Model::attend_singles(std::size_t layer, const void* queries, void* context) {
  const std::int64_t count = shape_.singles;
  kernels_.call(cached_kernel("decode_paged"),
                {grouped(queries, count), cached_by_row(cache_.keys(layer)), cached_by_row(cache_.values(layer)),
                 numbers(kTable, {count, shape_.width}), numbers(kLengths, {count}), grouped(context, count)});
}

void Model::attend_gathered(std::size_t layer, const void* queries, void* context) {
  const std::int64_t count = shape_.sequences - shape_.singles, tokens = shape_.tokens - shape_.singles;
  const std::int64_t dim = config_.head_dim, shared = config_.key_heads, elements = shape_.keys * shared * dim;
  const Tensor keys(room(kKeys, elements, type_), type_, {shape_.keys, shared, dim});
  const Tensor values(room(kValues, elements, type_), type_, {shape_.keys, shared, dim});
  const Tensor bounds = numbers(kBounds, {count + 1}), key_bounds = numbers(kKeyBounds, {count + 1});
  kernels_.call(cached_kernel("gather_pages"),
                {cached(cache_.keys(layer)), cached(cache_.values(layer)),
                 numbers(kTable, {count, shape_.width}, Type::kInt32, shape_.singles * shape_.width), key_bounds,
                 shape_.most_keys, keys, values});
  const Tensor sums(room(kSums, tokens * config_.heads, Type::kFloat32), Type::kFloat32, {config_.heads, tokens});
  kernels_.call(kernel("attention_varlen"),
                {Tensor(queries, type_, {tokens, config_.heads, dim}), keys, values, bounds, key_bounds, shape_.most,
                 Tensor(context, type_, {tokens, config_.heads, dim}), sums});
}

}  // namespace llama
