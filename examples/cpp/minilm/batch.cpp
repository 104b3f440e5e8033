#include "batch.hpp"

#include <stdexcept>

namespace minilm {

void Batch::add(const std::int32_t* tokens, std::int32_t length) {
  if (length < 1 || length > kPositions) throw std::invalid_argument("a sentence has 1 to 512 tokens");
  starts.push_back(static_cast<std::int32_t>(ids.size()));
  lengths.push_back(length);
  longest = length > longest ? length : longest;
  for (std::int32_t t = 0; t < length; ++t) {
    ids.push_back(tokens[t]);
    positions.push_back(t);
    types.push_back(0);
  }
}

void Batch::clear() {
  for (auto* column : {&ids, &positions, &types, &starts, &lengths}) column->clear();
  longest = 0;
}

}  // namespace minilm
