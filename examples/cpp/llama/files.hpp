// Files of a checkpoint, mapped read-only and never copied.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace llama {

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

// The tensors of model.safetensors, or of the parts that model.safetensors.index.json names.
class Checkpoint {
 public:
  // `folder` as transformers saves it. Throws std::runtime_error: which file, and what is wrong with it.
  explicit Checkpoint(const std::string& folder);

  bool has(const std::string& name) const { return tensors_.count(name) != 0; }

  // Throws std::runtime_error when it is absent or of another shape than the config asks for.
  const StoredTensor& get(const std::string& name, const std::vector<std::int64_t>& shape) const;

 private:
  void add(const std::string& path);

  std::vector<MappedFile> files_;
  std::unordered_map<std::string, StoredTensor> tensors_;
};

}  // namespace llama
