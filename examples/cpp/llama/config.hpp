// What config.json says of a decoder-only model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace llama {

// Scaling of rotary frequencies: none, "linear" (all of them by `factor`), or "llama3" (long waves by `factor`, short
// ones not, those between `original / high` and `original / low` tokens in part).
struct RopeScaling {
  enum class Kind { kNone, kLinear, kLlama3 } kind = Kind::kNone;
  double factor = 1, low = 1, high = 1, original = 0;
};

// The MLPs of a mixture of experts, of which a token goes through `chosen`, and through one of `shared` channels.
struct Experts {
  std::int64_t count = 0, chosen = 0, inner = 0, shared = 0;
  bool renormalise = false;          // the weights of a token's experts sum to 1
  std::int64_t step = 1;             // every so many layers have experts, the first ones last,
  std::vector<std::int64_t> plain;   // but for these

  bool are_in(std::int64_t layer) const;
};

struct Config {
  // Reads `folder`/config.json of a Llama, Mistral, Mixtral, Qwen2 or Qwen3 model, of these with experts, too. Throws std::runtime_error for what is
  // malformed and for what this engine has no code for.
  static Config read(const std::string& folder);

  std::int64_t hidden = 0, inner = 0, layers = 0, vocabulary = 0, positions = 0;
  std::int64_t heads = 0, key_heads = 0, head_dim = 0;
  std::int64_t window = 0;  // keys that a query sees; 0: all
  double eps = 0, theta = 0;
  RopeScaling rope;
  Experts experts;
  bool tied = false;      // the table of embeddings is the last product's weight, too
  bool qk_norm = false;   // heads of queries and keys are normed
  bool qkv_bias = false;  // the projections of queries, keys and values have biases

  // What each of `ranks` devices has of the model: some of the heads and of the channels of MLPs. Throws std::runtime_error.
  Config split(std::int64_t ranks) const;

  std::int64_t fused_heads() const { return heads + 2 * key_heads; }
  std::int64_t group() const { return heads / key_heads; }
};

}  // namespace llama
