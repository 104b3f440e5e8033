// JSON as config.json and the headers of safetensors files have it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace checkpoint {

// A value. Asking for what it is not, or for a member that it lacks, throws std::runtime_error with the path to it.
class Json {
 public:
  // Throws std::runtime_error: what was expected, and at which byte of `name`.
  static Json parse(std::string_view text, const std::string& name);

  // A member; `find` gives nullptr where there is none, or null.
  const Json& at(const std::string& key) const;
  const Json* find(const std::string& key) const;

  const std::string& text() const;
  double number() const;
  std::int64_t integer() const;
  bool flag() const;
  const std::vector<Json>& items() const;
  const std::map<std::string, Json>& members() const;

 private:
  friend class JsonReader;
  enum class Kind { kNull, kFlag, kNumber, kText, kArray, kObject };
  void require(Kind kind, const char* what) const;

  Kind kind_ = Kind::kNull;
  std::string path_;  // for messages: "config.json: rope_scaling.factor"
  double number_ = 0;
  std::string text_;
  std::vector<Json> items_;
  std::map<std::string, Json> members_;
};

}  // namespace checkpoint
