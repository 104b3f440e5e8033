// What config.json says of a decoder-only model.
#pragma once

#include <cstdint>
#include <string>

namespace llama {

// Scaling of rotary frequencies: none, "linear" (all of them by `factor`), or "llama3" (long waves by `factor`, short
// ones not, those between `original / high` and `original / low` tokens in part).
struct RopeScaling {
  enum class Kind { kNone, kLinear, kLlama3 } kind = Kind::kNone;
  double factor = 1, low = 1, high = 1, original = 0;
};

struct Config {
  // Reads `folder`/config.json of a Llama, Mistral, Qwen2 or Qwen3 model. Throws std::runtime_error for what is
  // malformed and for what this engine has no code for.
  static Config read(const std::string& folder);

  std::int64_t hidden = 0, inner = 0, layers = 0, vocabulary = 0, positions = 0;
  std::int64_t heads = 0, key_heads = 0, head_dim = 0;
  std::int64_t window = 0;  // keys that a query sees; 0: all
  double eps = 0, theta = 0;
  RopeScaling rope;
  bool tied = false;      // the table of embeddings is the last product's weight, too
  bool qk_norm = false;   // heads of queries and keys are normed
  bool qkv_bias = false;  // the projections of queries, keys and values have biases

  std::int64_t fused_heads() const { return heads + 2 * key_heads; }
  std::int64_t group() const { return heads / key_heads; }
};

}  // namespace llama
