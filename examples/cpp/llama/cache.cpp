#include "cache.hpp"

namespace llama {

Cache::Cache(const Config& config, Type type, std::int64_t pages, Device& device) : pages_(pages) {
  const std::int64_t bytes = pages * config.key_heads * kPage * config.head_dim * bytes_of(type);
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    keys_.push_back(device.allocate(static_cast<std::size_t>(bytes)));
    values_.push_back(device.allocate(static_cast<std::size_t>(bytes)));
  }
  for (std::int64_t page = pages; page-- > 0;) free_.push_back(static_cast<std::int32_t>(page));
}

std::vector<std::int32_t> Cache::take(std::int64_t count) {
  const auto first = free_.end() - static_cast<std::ptrdiff_t>(count);
  const std::vector<std::int32_t> taken(first, free_.end());
  free_.erase(first, free_.end());
  return taken;
}

void Cache::release(const std::vector<std::int32_t>& pages) { free_.insert(free_.end(), pages.begin(), pages.end()); }

}  // namespace llama
