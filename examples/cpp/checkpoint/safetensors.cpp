#include "safetensors.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <set>
#include <stdexcept>
#include <utility>

#include "json.hpp"

namespace checkpoint {
namespace {

constexpr std::size_t kLengthBytes = 8;  // the header's length, little-endian

std::uint64_t header_length(std::string_view file) {
  std::uint64_t value = 0;
  for (std::size_t i = kLengthBytes; i-- > 0;) value = value << 8 | static_cast<unsigned char>(file[i]);
  return value;
}

std::vector<std::int64_t> integers(const Json& list) {
  std::vector<std::int64_t> found;
  for (const Json& item : list.items()) found.push_back(item.integer());
  return found;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + ")";
}

std::int64_t element_bytes(const std::string& dtype) {
  if (dtype == "F32") return 4;
  return dtype == "BF16" || dtype == "F16" ? 2 : 0;
}

bool is_folder(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

}  // namespace

MappedFile::MappedFile(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw std::runtime_error("cannot open " + path + ": " + std::strerror(errno));
  struct stat info {};
  const bool known = ::fstat(fd, &info) == 0 && info.st_size > 0;
  size_ = known ? static_cast<std::size_t>(info.st_size) : 0;
  void* at = known ? ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
  ::close(fd);
  if (at == MAP_FAILED) throw std::runtime_error("cannot map " + path + ": it is empty or no file");
  data_ = static_cast<const char*>(at);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<char*>(data_), size_);
}

Checkpoint::Checkpoint(const std::string& path) {
  const std::string index = path + "/model.safetensors.index.json";
  if (::access(index.c_str(), R_OK) != 0) {
    add(is_folder(path) ? path + "/model.safetensors" : path);
    return;
  }
  const MappedFile file(index);
  const Json parsed = Json::parse(file.bytes(), index);
  std::set<std::string> parts;
  for (const auto& [name, part] : parsed.at("weight_map").members()) parts.insert(part.text());
  for (const std::string& part : parts) add(path + "/" + part);
}

void Checkpoint::add(const std::string& path) {
  files_.emplace_back(path);
  const std::string_view file = files_.back().bytes();
  if (file.size() < kLengthBytes || header_length(file) > file.size() - kLengthBytes)
    throw std::runtime_error(path + ": not a safetensors file: the header is longer than the file");
  const std::size_t length = static_cast<std::size_t>(header_length(file));
  const std::string_view data = file.substr(kLengthBytes + length);
  const Json header = Json::parse(file.substr(kLengthBytes, length), path);
  for (const auto& [name, entry] : header.members()) {
    if (name == "__metadata__") continue;
    const std::vector<std::int64_t> span = integers(entry.at("data_offsets"));
    if (span.size() != 2 || span[0] < 0 || span[1] < span[0] || static_cast<std::size_t>(span[1]) > data.size())
      throw std::runtime_error(path + ": " + name + " leaves the file");
    const auto begin = static_cast<std::size_t>(span[0]), end = static_cast<std::size_t>(span[1]);
    tensors_[name] = {entry.at("dtype").text(), integers(entry.at("shape")), data.substr(begin, end - begin)};
  }
}

const StoredTensor& Checkpoint::get(const std::string& name, const std::vector<std::int64_t>& shape) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) throw std::runtime_error("the checkpoint has no tensor " + name);
  const StoredTensor& tensor = found->second;
  if (tensor.shape != shape)
    throw std::runtime_error(name + " is " + shape_text(tensor.shape) + " where the model has " +
                             shape_text(shape));
  std::int64_t bytes = element_bytes(tensor.dtype);
  if (bytes == 0) throw std::runtime_error(name + " is of type " + tensor.dtype + ": F32, BF16 and F16 are read");
  for (const std::int64_t extent : shape) bytes *= extent;
  if (static_cast<std::size_t>(bytes) != tensor.bytes.size())
    throw std::runtime_error(name + " has another number of bytes than its shape");
  return tensor;
}

}  // namespace checkpoint
