// The paged cache of keys and values: which pages belong to which sequences, and what pages hold beyond them.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "config.hpp"
#include "kernels.hpp"

namespace llama {

// Tokens of a page, as llama.toml pins it.
constexpr std::int64_t kPage = 16;

constexpr std::int64_t pages_for(std::int64_t tokens) { return (tokens + kPage - 1) / kPage; }

// Memory for `pages` pages of every layer, each (key heads, kPage, head_dim) of keys and of values. Full pages of prompts
// are known by their tokens and all tokens before them until nobody uses them and their room is needed: those
// first that were longest without a user, and of one sequence the last.
class Cache {
 public:
  Cache(const Config& config, Type type, std::int64_t pages, Device& device);

  // Pages of one sequence. The first `known` of its tokens are in them, or get there before they are read.
  struct Taken {
    std::vector<std::int32_t> pages;
    std::int64_t known = 0;
  };

  std::int64_t pages() const { return static_cast<std::int64_t>(states_.size()); }
  const void* keys(std::size_t layer) const { return keys_[layer]; }
  const void* values(std::size_t layer) const { return values_[layer]; }

  // `count` pages for a sequence that begins with `prompt`, which has to be brought into them behind what is known, in
  // front of what later callers bring; nothing while too few are without users. The last token is never among the known.
  std::optional<Taken> take(const std::vector<std::int32_t>& prompt, std::int64_t count);
  void release(const std::vector<std::int32_t>& pages);

 private:
  // The tokens of a page and the number of the page before, which no other page has ever had; 0: there is none.
  struct Content {
    std::int64_t before;
    std::array<std::int32_t, kPage> tokens;
    bool operator==(const Content& other) const { return before == other.before && tokens == other.tokens; }
  };
  struct Hash {
    std::size_t operator()(const Content& content) const {
      return std::hash<std::string_view>()({reinterpret_cast<const char*>(&content), sizeof content});
    }
  };
  static_assert(sizeof(Content) == sizeof(std::int64_t) + kPage * sizeof(std::int32_t), "bytes that are hashed are tokens");
  struct State {
    std::int64_t users = 0, number = 0;  // 0: what it holds is not known
    Content content{};
    std::list<std::int32_t>::iterator place{};  // in idle_, without users
  };

  void use(std::int32_t page);
  void make_known(const std::vector<std::int32_t>& prompt, const Taken& taken);

  std::vector<void*> keys_, values_;
  std::vector<State> states_;
  std::list<std::int32_t> idle_;  // the next to be given away in front
  std::unordered_map<Content, std::int32_t, Hash> known_;
  std::int64_t last_number_ = 0;
};

}  // namespace llama
