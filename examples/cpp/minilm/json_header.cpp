#include "json_header.hpp"

#include <stdexcept>

namespace minilm {
namespace {

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  // The next character after white space, without taking it; '\0' at the end.
  char peek() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r'))
      ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  void expect(char wanted) {
    if (peek() != wanted)
      throw std::runtime_error("safetensors header: expected '" + std::string(1, wanted) + "' at byte " +
                               std::to_string(at_));
    ++at_;
  }

  bool accept(char wanted) {
    if (peek() != wanted) return false;
    ++at_;
    return true;
  }

  // Escapes are kept as they are: names of tensors have none.
  std::string string() {
    expect('"');
    const std::size_t begin = at_;
    while (at_ < text_.size() && text_[at_] != '"') at_ += text_[at_] == '\\' ? 2 : 1;
    if (at_ >= text_.size()) throw std::runtime_error("safetensors header: unterminated string");
    return std::string(text_.substr(begin, at_++ - begin));
  }

  std::int64_t integer() {
    peek();
    const std::size_t begin = at_;
    std::int64_t value = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9' && at_ - begin < 18; ++at_)
      value = value * 10 + (text_[at_] - '0');
    if (at_ == begin) throw std::runtime_error("safetensors header: expected a number at byte " + std::to_string(at_));
    return value;
  }

  std::vector<std::int64_t> integers() {
    std::vector<std::int64_t> values;
    expect('[');
    if (accept(']')) return values;
    do values.push_back(integer());
    while (accept(','));
    expect(']');
    return values;
  }

 private:
  std::string_view text_;
  std::size_t at_ = 0;
};

void skip_metadata(Reader& in) {
  in.expect('{');
  if (in.accept('}')) return;
  do {
    in.string();
    in.expect(':');
    in.string();
  } while (in.accept(','));
  in.expect('}');
}

void read_field(Reader& in, HeaderEntry& entry) {
  const std::string key = in.string();
  in.expect(':');
  if (key == "dtype") {
    entry.dtype = in.string();
  } else if (key == "shape") {
    entry.shape = in.integers();
  } else if (key == "data_offsets") {
    const auto offsets = in.integers();
    if (offsets.size() != 2) throw std::runtime_error("safetensors header: data_offsets of " + entry.name);
    entry.begin = offsets[0];
    entry.end = offsets[1];
  } else {
    throw std::runtime_error("safetensors header: unknown key \"" + key + "\" in " + entry.name);
  }
}

HeaderEntry read_entry(Reader& in, std::string name) {
  HeaderEntry entry;
  entry.name = std::move(name);
  in.expect('{');
  do read_field(in, entry);
  while (in.accept(','));
  in.expect('}');
  return entry;
}

}  // namespace

std::vector<HeaderEntry> parse_header(std::string_view text) {
  Reader in(text);
  std::vector<HeaderEntry> entries;
  in.expect('{');
  if (in.accept('}')) return entries;
  do {
    std::string name = in.string();
    in.expect(':');
    if (name == "__metadata__")
      skip_metadata(in);
    else
      entries.push_back(read_entry(in, std::move(name)));
  } while (in.accept(','));
  in.expect('}');
  return entries;
}

}  // namespace minilm
