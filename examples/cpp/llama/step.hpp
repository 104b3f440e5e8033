// What one step of a model works on: some new tokens of some sequences.
#pragma once

#include <cstdint>
#include <vector>

#include "cache.hpp"

namespace llama {

// temperature 0 takes the likeliest token. Else one is drawn among the `top_k` likeliest (0: all), of these among the
// fewest whose probabilities reach `top_p`. The same seed, place in the sequence and logits give the same token, whatever
// else is in the batch.
struct Sampling {
  float temperature = 0, top_p = 1;
  std::int32_t top_k = 0;
  std::uint64_t seed = 0;
};

// Sequences one behind the other, each with its new tokens: one where it decodes, a chunk of its prompt else.
struct Step {
  std::vector<std::int32_t> ids;               // of each token; -1 - i: sampled for row i of the step before
  std::vector<std::int32_t> positions, slots;  // of each token; its slot is page * kPage + row
  std::vector<std::int32_t> bounds{0}, lengths;     // where sequences end; keys of each, with the new ones
  std::vector<std::vector<std::int32_t>> pages;     // of each sequence
  std::vector<std::int32_t> rows;                   // tokens whose logits are asked for
  // How to sample for each of these: floats as their bits, seeds as two words, positions.
  std::vector<std::int32_t> temperatures, top_ks, top_ps, seeds, draws;

  // Tokens `ids` of a sequence behind the `past` that the cache has already. `wanted` of them, the last ones, ask
  // for logits.
  void add(const std::int32_t* begin, const std::int32_t* end, std::int64_t past,
           const std::vector<std::int32_t>& own_pages, std::int64_t wanted, const Sampling& sampling = {});

  // Adds sequences of one token and no keys, whose slot lies outside of the cache, up to `count` sequences.
  void pad(std::int64_t count, std::int64_t cache_pages);

  std::int64_t tokens() const { return static_cast<std::int64_t>(ids.size()); }
  std::int64_t sequences() const { return static_cast<std::int64_t>(lengths.size()); }
  std::int64_t singles() const;             // sequences of one new token in front of all others
  std::int64_t longest() const;             // pages of the sequence that has most
  std::vector<std::int32_t> table(std::int64_t width) const;  // (sequences, width): pages, behind them zeros
  // Where the other sequences end when the tokens, or the keys, of these alone lie back to back, from 0 on.
  std::vector<std::int32_t> bounds_behind(std::int64_t sequences) const;
  std::vector<std::int32_t> key_bounds_behind(std::int64_t sequences) const;

 private:
  void ask(const Sampling& sampling);  // for the logits of the token that is added next
};

}  // namespace llama
