// Sentences as the encoder takes them, and the shape of the model.
#pragma once

#include <cstdint>
#include <vector>

namespace minilm {

constexpr std::int64_t kHidden = 384, kInner = 1536, kHeads = 12, kHeadDim = 32, kLayers = 6;
constexpr std::int64_t kVocabulary = 30522, kPositions = 512, kTypes = 2, kFused = 3 * kHidden;

// Sentences back to back, without padding: rows starts[b] to starts[b] + lengths[b] - 1 belong to sentence b.
struct Batch {
  std::vector<std::int32_t> ids, positions, types;  // one per token
  std::vector<std::int32_t> starts, lengths;        // one per sentence
  std::int32_t longest = 0;

  // Appends a sentence of token ids. Throws std::invalid_argument when it is empty or longer than kPositions.
  void add(const std::int32_t* tokens, std::int32_t length);
  void clear();

  std::int64_t tokens() const { return static_cast<std::int64_t>(ids.size()); }
  std::int64_t sentences() const { return static_cast<std::int64_t>(starts.size()); }
};

}  // namespace minilm
