// The MLP of a layer: one for all tokens, or a mixture of experts, whose rows are one product however they are shared out.
#include "model.hpp"
#include "numbers.hpp"

namespace llama {

void Model::feed_forward(const Layer& layer) {
  if (layer.router.data != nullptr) return mix(layer);
  gated(layer.mlp, normed(), rows(kProjected, config_.hidden), nullptr);
}

void Model::gated(const Mlp& mlp, Tensor in, Tensor out, const Tensor* offsets) {
  const std::int64_t inner = mlp.down.inputs, count = in.rows();
  const char* fused = static_cast<const char*>(room(kGateUp, count * 2 * inner, type_));
  const Tensor gate(fused, type_, {count, inner}, {2 * inner, 1});
  const Tensor up(fused + inner * bytes_of(type_), type_, {count, inner}, {2 * inner, 1});
  multiply(in, mlp.gate_up, Tensor(fused, type_, {count, 2 * inner}), offsets);
  if (rounds()) {
    kernels_.call(kernel("silu_mul_rounded"), {gate, up, rounded(count, inner), rounded_by(count)});
    return multiply(rounded(count, inner), mlp.down, out, offsets);
  }
  const Tensor activated(room(kInner, count * inner, type_), type_, {count, inner});
  kernels_.call(kernel("silu_mul"), {gate, up, activated});
  multiply(activated, mlp.down, out, offsets);
}

void Model::multiply(Tensor in, const Matrix& matrix, Tensor out, const Tensor* offsets) {
  if (offsets == nullptr) return linear(in, matrix, out);
  const std::int64_t experts = config_.experts.count, features = matrix.features, blocks = matrix.inputs / kQ4Block;
  const auto weights = [&](Type type, std::int64_t width) { return Tensor(matrix.data, type, {experts, features, width}); };
  switch (precision_.form) {
    case Form::kPlain:
      return kernels_.call(kernel("linear_grouped"), {in, weights(type_, matrix.inputs), *offsets, out});
    case Form::kQ4Blocks:
      return kernels_.call("linear_grouped_q4_0", {in, Tensor(matrix.data, Type::kByte, {experts, features, blocks, kQ4Bytes}),
                                                   *offsets, out});
    case Form::kQ4Packed:
      return kernels_.call("linear_grouped_packed", {in, weights(Type::kByte, matrix.inputs / 2),
                                                     Tensor(matrix.scales, type_, {blocks, experts, features}), *offsets, out});
    case Form::kFloat8: {
      const auto [read, by] = round_rows(in, matrix.inputs);
      kernels_.call("linear_grouped_fp8", {read, weights(Type::kFloat8, matrix.inputs), by,
                                           Tensor(matrix.scales, Type::kFloat32, {experts, features}), *offsets, out});
    }
  }
}

void Model::mix(const Layer& layer) {
  const Experts& experts = config_.experts;
  const std::int64_t hidden = config_.hidden, chosen = experts.chosen, pairs = shape_.tokens * chosen;
  const auto integers = [&](Slot slot, std::int64_t count) { return Tensor(room(slot, count, Type::kInt32), Type::kInt32, {count}); };
  const auto by_token = [&](Slot slot, Type type) { return Tensor(room(slot, pairs, type), type, {shape_.tokens, chosen}); };
  const auto of_pairs = [&](Slot slot) { return Tensor(room(slot, pairs * hidden, type_), type_, {pairs, hidden}); };
  const Tensor normed = rows(kNormed, hidden), scores = rows(kScores, experts.count), gate = rows(kGate, 1);
  const auto narrow = [&](const Matrix& matrix, Tensor out) {
    kernels_.call(kernel("linear_narrow"), {normed, Tensor(matrix.data, type_, {matrix.features, hidden}), out});
  };
  const Tensor offsets = integers(kOffsets, experts.count + 1), tokens = integers(kTokens, pairs);
  narrow(layer.router, scores);
  kernels_.call(kernel(experts.renormalise ? "topk_gating_renormalised" : "topk_gating"),
                {scores, by_token(kShares, Type::kFloat32), by_token(kChosen, Type::kInt32)});
  kernels_.call("tokens_by_expert", {integers(kChosen, pairs), static_cast<std::int32_t>(chosen), offsets, tokens,
                                     integers(kOfPairs, pairs)});
  kernels_.call(kernel("embedding"), {tokens, normed, of_pairs(kGathered)});
  gated(layer.experts, of_pairs(kGathered), of_pairs(kMixed), &offsets);
  if (experts.shared != 0) {
    gated(layer.mlp, normed, rows(kShared, hidden), nullptr);
    narrow(layer.shared_gate, gate);
  }
  // Without a shared expert the kernel reads neither of the two in front of its result.
  kernels_.call(kernel(experts.shared != 0 ? "sum_of_experts_shared" : "sum_of_experts"),
                {of_pairs(kMixed), by_token(kOfPairs, Type::kInt32), by_token(kShares, Type::kFloat32), rows(kShared, hidden),
                 Tensor(room(kGate, shape_.tokens, type_), type_, {shape_.tokens}), rows(kProjected, hidden)});
}

}  // namespace llama
