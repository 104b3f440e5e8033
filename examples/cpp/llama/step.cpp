#include "step.hpp"

#include <algorithm>
#include <cstring>

namespace llama {
namespace {

std::int32_t bits_of(float value) {
  std::int32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

}  // namespace

void Step::add(const std::int32_t* begin, const std::int32_t* end, std::int64_t past,
               const std::vector<std::int32_t>& own_pages, std::int64_t wanted,
               const Sampling& sampling) {
  for (const std::int32_t* id = begin; id != end; ++id) {
    const std::int64_t position = past + (id - begin);
    positions.push_back(static_cast<std::int32_t>(position));
    if (end - id <= wanted) ask(sampling);
    ids.push_back(*id);
    slots.push_back(own_pages[static_cast<std::size_t>(position / kPage)] * static_cast<std::int32_t>(kPage) +
                    static_cast<std::int32_t>(position % kPage));
  }
  bounds.push_back(static_cast<std::int32_t>(ids.size()));
  lengths.push_back(static_cast<std::int32_t>(past + (end - begin)));
  pages.push_back(own_pages);
}

void Step::ask(const Sampling& sampling) {
  rows.push_back(static_cast<std::int32_t>(ids.size()));
  temperatures.push_back(bits_of(sampling.temperature));
  top_ks.push_back(sampling.top_k);
  top_ps.push_back(bits_of(sampling.top_p));
  seeds.insert(seeds.end(), {static_cast<std::int32_t>(sampling.seed), static_cast<std::int32_t>(sampling.seed >> 32)});
  draws.push_back(positions.back());
}

void Step::pad(std::int64_t count, std::int64_t cache_pages) {
  constexpr std::int32_t kNoToken = 0;
  while (sequences() < count) {
    add(&kNoToken, &kNoToken + 1, 0, {static_cast<std::int32_t>(cache_pages)}, 1);
    lengths.back() = 0;
    pages.back().clear();
  }
}

std::int64_t Step::singles() const {
  std::int64_t count = 0;
  while (count < sequences() && bounds[static_cast<std::size_t>(count) + 1] == count + 1) ++count;
  return count;
}

std::int64_t Step::longest() const {
  return pages_for(*std::max_element(lengths.begin(), lengths.end()));
}

std::vector<std::int32_t> Step::table(std::int64_t width) const {
  std::vector<std::int32_t> made(pages.size() * static_cast<std::size_t>(width));
  for (std::size_t i = 0; i < pages.size(); ++i)
    std::copy_n(pages[i].begin(), std::min(static_cast<std::size_t>(width), pages[i].size()),
                made.begin() + static_cast<std::ptrdiff_t>(i) * width);
  return made;
}

std::vector<std::int32_t> Step::bounds_behind(std::int64_t sequences) const {
  std::vector<std::int32_t> made(bounds.begin() + static_cast<std::ptrdiff_t>(sequences), bounds.end());
  for (std::int32_t& bound : made) bound -= static_cast<std::int32_t>(sequences);
  return made;
}

std::vector<std::int32_t> Step::key_bounds_behind(std::int64_t sequences) const {
  std::vector<std::int32_t> made{0};
  for (auto i = static_cast<std::size_t>(sequences); i < lengths.size(); ++i) made.push_back(made.back() + lengths[i]);
  return made;
}

}  // namespace llama
