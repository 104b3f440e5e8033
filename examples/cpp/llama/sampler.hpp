// Which token comes next.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace llama {

// temperature 0 takes the likeliest token. Else one is drawn among the `top_k` likeliest (0: all), of these among the
// fewest whose probabilities reach `top_p`.
struct Sampling {
  float temperature = 0, top_p = 1;
  std::int64_t top_k = 0;
  std::uint64_t seed = 0;
};

// Draws of one sequence: the same seed and logits give the same tokens, whatever else is in the batch.
class Sampler {
 public:
  explicit Sampler(const Sampling& how) : how_(how), random_(how.seed) {}
  std::int32_t pick(const float* logits, std::int64_t count);

 private:
  Sampling how_;
  std::mt19937_64 random_;
  std::vector<std::int32_t> order_;
  std::vector<double> weights_;
};

}  // namespace llama
