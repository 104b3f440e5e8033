// The JSON of a safetensors header, and no more of JSON than that needs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace minilm {

struct HeaderEntry {
  std::string name, dtype;
  std::vector<std::int64_t> shape;
  std::int64_t begin = 0, end = 0;  // bytes, from the end of the header
};

// Entries in file order; "__metadata__" is left out. Throws std::runtime_error on malformed text.
std::vector<HeaderEntry> parse_header(std::string_view text);

}  // namespace minilm
