#include "step.hpp"

#include <algorithm>

namespace llama {

void Step::add(const std::int32_t* begin, const std::int32_t* end, std::int64_t past,
               const std::vector<std::int32_t>& own_pages, std::int64_t wanted) {
  for (const std::int32_t* id = begin; id != end; ++id) {
    const std::int64_t position = past + (id - begin);
    if (end - id <= wanted) rows.push_back(static_cast<std::int32_t>(ids.size()));
    ids.push_back(*id);
    positions.push_back(static_cast<std::int32_t>(position));
    slots.push_back(own_pages[static_cast<std::size_t>(position / kPage)] * static_cast<std::int32_t>(kPage) +
                    static_cast<std::int32_t>(position % kPage));
  }
  bounds.push_back(static_cast<std::int32_t>(ids.size()));
  lengths.push_back(static_cast<std::int32_t>(past + (end - begin)));
  pages.push_back(own_pages);
}

std::int32_t Step::most() const {
  std::int32_t found = 0;
  for (std::size_t i = 1; i < bounds.size(); ++i) found = std::max(found, bounds[i] - bounds[i - 1]);
  return found;
}

std::int64_t Step::longest() const {
  return pages_for(*std::max_element(lengths.begin(), lengths.end()));
}

std::vector<std::int32_t> Step::table() const {
  const auto width = static_cast<std::size_t>(longest());
  std::vector<std::int32_t> made(pages.size() * width);
  for (std::size_t i = 0; i < pages.size(); ++i)
    std::copy_n(pages[i].begin(), std::min(width, pages[i].size()), made.begin() + static_cast<std::ptrdiff_t>(i * width));
  return made;
}

}  // namespace llama
