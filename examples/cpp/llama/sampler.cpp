#include "sampler.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace llama {

std::int32_t Sampler::pick(const float* logits, std::int64_t count) {
  if (how_.temperature == 0) return static_cast<std::int32_t>(std::max_element(logits, logits + count) - logits);
  order_.resize(static_cast<std::size_t>(count));
  std::iota(order_.begin(), order_.end(), 0);
  const std::int64_t kept = how_.top_k == 0 ? count : std::min(how_.top_k, count);
  const auto likelier = [&](std::int32_t a, std::int32_t b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; };
  std::partial_sort(order_.begin(), order_.begin() + kept, order_.end(), likelier);
  weights_.resize(static_cast<std::size_t>(kept));
  const auto weigh = [&](std::int32_t id) { return std::exp((logits[id] - logits[order_[0]]) / static_cast<double>(how_.temperature)); };
  std::transform(order_.begin(), order_.begin() + kept, weights_.begin(), weigh);
  const double wanted = how_.top_p * std::accumulate(weights_.begin(), weights_.end(), 0.0);
  std::size_t among = 0;
  for (double sum = 0; among < weights_.size() && (among == 0 || sum < wanted); ++among) sum += weights_[among];
  // A draw of 53 bits: the distributions of <random> differ between libraries.
  double left = static_cast<double>(random_() >> 11) * 0x1p-53 *
                std::accumulate(weights_.begin(), weights_.begin() + static_cast<std::ptrdiff_t>(among), 0.0);
  std::size_t chosen = 0;
  while (chosen + 1 < among && left >= weights_[chosen]) left -= weights_[chosen++];
  return order_[chosen];
}

}  // namespace llama
