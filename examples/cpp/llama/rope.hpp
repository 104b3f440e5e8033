// Angles of rotary position embedding.
#pragma once

#include <vector>

#include "config.hpp"

namespace llama {

// Cosines and sines of `positions` positions, (positions, head_dim / 2) each.
struct RopeTables {
  RopeTables(const Config& config, std::int64_t positions);
  std::vector<float> cos, sin;
};

}  // namespace llama
