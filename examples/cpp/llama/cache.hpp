// The paged cache of keys and values: which pages belong to which sequence.
#pragma once

#include <cstdint>
#include <vector>

#include "config.hpp"
#include "kernels.hpp"

namespace llama {

// Tokens of a page, as llama.toml pins it.
constexpr std::int64_t kPage = 16;

constexpr std::int64_t pages_for(std::int64_t tokens) { return (tokens + kPage - 1) / kPage; }

// Memory for `pages` pages of every layer, each (key heads, kPage, head_dim) of keys and of values.
class Cache {
 public:
  Cache(const Config& config, Type type, std::int64_t pages, Device& device);

  std::int64_t pages() const { return pages_; }
  std::int64_t free_pages() const { return static_cast<std::int64_t>(free_.size()); }
  const void* keys(std::size_t layer) const { return keys_[layer]; }
  const void* values(std::size_t layer) const { return values_[layer]; }

  // `count` pages, of which there have to be so many free; `release` takes them back.
  std::vector<std::int32_t> take(std::int64_t count);
  void release(const std::vector<std::int32_t>& pages);

 private:
  std::int64_t pages_;
  std::vector<void*> keys_, values_;
  std::vector<std::int32_t> free_;
};

}  // namespace llama
