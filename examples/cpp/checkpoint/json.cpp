#include "json.hpp"

#include <cmath>
#include <cstdlib>
#include <stdexcept>

namespace checkpoint {

class JsonReader {
 public:
  JsonReader(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  Json document() {
    Json value = read(name_ + ":");
    if (peek() != '\0') fail("the end");
    return value;
  }

 private:
  [[noreturn]] void fail(const std::string& wanted) const {
    throw std::runtime_error(name_ + ": expected " + wanted + " at byte " + std::to_string(at_));
  }

  char peek() {
    while (at_ < text_.size() && std::string_view(" \n\t\r").find(text_[at_]) != std::string_view::npos) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  bool accept(char wanted) {
    if (peek() != wanted) return false;
    ++at_;
    return true;
  }

  void expect(char wanted) {
    if (!accept(wanted)) fail(std::string("'") + wanted + "'");
  }

  // Escapes of one letter become that letter; names and paths of models have no others.
  std::string string() {
    expect('"');
    std::string out;
    while (at_ < text_.size() && text_[at_] != '"') {
      if (text_[at_] == '\\') ++at_;
      if (at_ < text_.size()) out += text_[at_++];
    }
    expect('"');
    return out;
  }

  Json read(const std::string& path) {
    if (++depth_ > 64) fail("no more than 64 levels");
    Json value;
    value.path_ = path;
    switch (peek()) {
      case '{': object(value); break;
      case '[': array(value); break;
      case '"': value.kind_ = Json::Kind::kText, value.text_ = string(); break;
      default: word(value);
    }
    --depth_;
    return value;
  }

  void object(Json& value) {
    value.kind_ = Json::Kind::kObject;
    expect('{');
    if (accept('}')) return;
    do {
      const std::string key = string();
      expect(':');
      value.members_[key] = read(value.path_ + (value.path_.back() == ':' ? " " : ".") + key);
    } while (accept(','));
    expect('}');
  }

  void array(Json& value) {
    value.kind_ = Json::Kind::kArray;
    expect('[');
    if (accept(']')) return;
    do value.items_.push_back(read(value.path_ + "[" + std::to_string(value.items_.size()) + "]"));
    while (accept(','));
    expect(']');
  }

  // true, false, null and numbers.
  void word(Json& value) {
    const std::size_t end = std::min(text_.find_first_of(",]} \n\t\r", at_), text_.size());
    const std::string found(text_.substr(at_, end - at_));
    if (found == "true" || found == "false") {
      value.kind_ = Json::Kind::kFlag;
      value.number_ = found == "true";
    } else if (found != "null") {
      char* stop = nullptr;
      value.kind_ = Json::Kind::kNumber;
      value.number_ = std::strtod(found.c_str(), &stop);
      if (found.empty() || *stop != '\0') fail("a value");
    }
    at_ = end;
  }

  std::string_view text_;
  const std::string& name_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

Json Json::parse(std::string_view text, const std::string& name) { return JsonReader(text, name).document(); }

void Json::require(Kind kind, const char* what) const {
  if (kind_ != kind) throw std::runtime_error(path_ + " is not " + what);
}

const Json* Json::find(const std::string& key) const {
  require(Kind::kObject, "an object");
  const auto found = members_.find(key);
  return found == members_.end() || found->second.kind_ == Kind::kNull ? nullptr : &found->second;
}

const Json& Json::at(const std::string& key) const {
  const Json* found = find(key);
  if (found == nullptr) throw std::runtime_error(path_ + " lacks \"" + key + "\"");
  return *found;
}

const std::string& Json::text() const { return require(Kind::kText, "a string"), text_; }
double Json::number() const { return require(Kind::kNumber, "a number"), number_; }
bool Json::flag() const { return require(Kind::kFlag, "true or false"), number_ != 0; }
const std::vector<Json>& Json::items() const { return require(Kind::kArray, "an array"), items_; }
const std::map<std::string, Json>& Json::members() const { return require(Kind::kObject, "an object"), members_; }

std::int64_t Json::integer() const {
  const double value = number();
  if (value != std::floor(value) || std::fabs(value) > 9e15) throw std::runtime_error(path_ + " is no integer");
  return static_cast<std::int64_t>(value);
}

}  // namespace checkpoint
