#include "host_memory.hpp"

#include <sys/mman.h>

#include <new>

namespace minilm {

void* allocate(std::size_t bytes) {
  constexpr std::size_t kHugePage = std::size_t{2} << 20;
  const std::size_t alignment = bytes < kHugePage ? kAlignment : kHugePage;
  const std::size_t size = (bytes + alignment - 1) / alignment * alignment;
  void* at = std::aligned_alloc(alignment, size);
  if (at == nullptr) throw std::bad_alloc();
  if (alignment == kHugePage) ::madvise(at, size, MADV_HUGEPAGE);  // a hint: ordinary pages do as well
  return at;
}

}  // namespace minilm
