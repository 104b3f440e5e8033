#include "safetensors.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string_view>

#include "json_header.hpp"

namespace minilm {
namespace {

// Maps a whole file read-only; its length goes to `size`.
const std::byte* map_file(const std::string& path, std::size_t& size) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw std::runtime_error("cannot open " + path + ": " + std::strerror(errno));
  struct stat info {};
  const bool known = ::fstat(fd, &info) == 0 && info.st_size > 8;
  size = known ? static_cast<std::size_t>(info.st_size) : 0;
  void* at = known ? ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
  ::close(fd);
  if (at == MAP_FAILED) throw std::runtime_error("cannot map " + path + ": not a safetensors file");
  return static_cast<const std::byte*>(at);
}

std::uint64_t little_endian(const std::byte* at) {
  std::uint64_t value = 0;
  for (int i = 7; i >= 0; --i) value = value << 8 | std::to_integer<std::uint64_t>(at[i]);
  return value;
}

}  // namespace

Safetensors::Safetensors(const std::string& path) : base_(map_file(path, size_)) {
  try {
    const std::uint64_t header = little_endian(base_);
    if (header > size_ - 8) throw std::runtime_error(path + ": the header is longer than the file");
    const std::size_t data = 8 + static_cast<std::size_t>(header);
    for (HeaderEntry& entry : parse_header({reinterpret_cast<const char*>(base_) + 8, data - 8})) {
      const auto begin = static_cast<std::size_t>(entry.begin), end = static_cast<std::size_t>(entry.end);
      if (begin > end || end > size_ - data) throw std::runtime_error(path + ": " + entry.name + " leaves the file");
      tensors_[entry.name] = Tensor{entry.dtype, entry.shape, base_ + data + begin, end - begin};
    }
  } catch (...) {
    ::munmap(const_cast<std::byte*>(base_), size_);
    throw;
  }
}

Safetensors::~Safetensors() { ::munmap(const_cast<std::byte*>(base_), size_); }

const float* Safetensors::f32(const std::string& name, const std::vector<std::int64_t>& shape) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) throw std::runtime_error("the weights have no tensor " + name);
  const Tensor& tensor = found->second;
  std::size_t bytes = sizeof(float);
  for (const std::int64_t extent : shape) bytes *= static_cast<std::size_t>(extent);
  if (tensor.dtype != "F32" || tensor.shape != shape || tensor.size != bytes)
    throw std::runtime_error("tensor " + name + " is not float32 of the shape that MiniLM-L6 has");
  return reinterpret_cast<const float*>(tensor.data);
}

}  // namespace minilm
