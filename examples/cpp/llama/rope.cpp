#include "rope.hpp"

#include <algorithm>
#include <cmath>

namespace llama {
namespace {

// Frequency of a pair after scaling, in radians a token.
double scaled(double frequency, const RopeScaling& scaling) {
  if (scaling.kind == RopeScaling::Kind::kNone) return frequency;
  if (scaling.kind == RopeScaling::Kind::kLinear) return frequency / scaling.factor;
  constexpr double kTurn = 6.283185307179586;
  const double waves = scaling.original * frequency / kTurn;  // that fit into the length of training
  const double kept = std::clamp((waves - scaling.low) / (scaling.high - scaling.low), 0.0, 1.0);
  return frequency * (kept + (1 - kept) / scaling.factor);
}

}  // namespace

// Angles are products in float32, as the checkpoints were trained with.
RopeTables::RopeTables(const Config& config, std::int64_t positions) {
  std::vector<float> frequencies;
  for (std::int64_t d = 0; d < config.head_dim; d += 2) {
    const double plain = std::pow(config.theta, -static_cast<double>(d) / static_cast<double>(config.head_dim));
    frequencies.push_back(static_cast<float>(scaled(plain, config.rope)));
  }
  for (std::int64_t position = 0; position < positions; ++position) {
    for (const float frequency : frequencies) {
      cos.push_back(std::cos(static_cast<float>(position) * frequency));
      sin.push_back(std::sin(static_cast<float>(position) * frequency));
    }
  }
}

}  // namespace llama
