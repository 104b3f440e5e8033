// What one step of a model works on: some new tokens of some sequences.
#pragma once

#include <cstdint>
#include <vector>

#include "cache.hpp"

namespace llama {

// Sequences one behind the other, each with its new tokens: one where it decodes, a chunk of its prompt else.
struct Step {
  std::vector<std::int32_t> ids, positions, slots;  // of each token; its slot is page * kPage + row
  std::vector<std::int32_t> bounds{0}, lengths;     // where sequences end; keys of each, with the new ones
  std::vector<std::vector<std::int32_t>> pages;     // of each sequence
  std::vector<std::int32_t> rows;                   // tokens whose logits are asked for

  // Tokens `ids` of a sequence behind the `past` that the cache has already. `wanted` of them, the last ones, ask
  // for logits.
  void add(const std::int32_t* begin, const std::int32_t* end, std::int64_t past,
           const std::vector<std::int32_t>& own_pages, std::int64_t wanted);

  std::int64_t tokens() const { return static_cast<std::int64_t>(ids.size()); }
  std::int64_t sequences() const { return static_cast<std::int64_t>(lengths.size()); }
  std::int32_t most() const;               // new tokens of the sequence that has most
  std::int64_t longest() const;            // pages of the sequence that has most
  std::vector<std::int32_t> table() const;  // (sequences, longest): pages, behind them zeros
};

}  // namespace llama
