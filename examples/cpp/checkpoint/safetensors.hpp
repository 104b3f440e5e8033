// Files of a checkpoint, mapped read-only and never copied.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace checkpoint {

// A whole file in memory. Throws std::runtime_error when it cannot be mapped.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  ~MappedFile();

  std::string_view bytes() const { return {data_, size_}; }

 private:
  const char* data_ = nullptr;
  std::size_t size_ = 0;
};

// One tensor of a checkpoint: its type as the file spells it ("F32", "BF16", "F16"), its bytes in the mapping.
struct StoredTensor {
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::string_view bytes;
};

// The tensors of a safetensors file, or of all those of a model.
class Checkpoint {
 public:
  // `path` of a file, or of a folder as transformers saves it: model.safetensors, or the parts that
  // model.safetensors.index.json names. Throws std::runtime_error: which file, and what is wrong with it.
  explicit Checkpoint(const std::string& path);

  bool has(const std::string& name) const { return tensors_.count(name) != 0; }

  // Throws std::runtime_error when it is absent or has another shape.
  const StoredTensor& get(const std::string& name, const std::vector<std::int64_t>& shape) const;

 private:
  void add(const std::string& path);

  std::vector<MappedFile> files_;
  std::unordered_map<std::string, StoredTensor> tensors_;
};

}  // namespace checkpoint
