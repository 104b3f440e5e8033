#include "executor.hpp"

#include <sys/mman.h>

#include <new>
#include <stdexcept>

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

Executor::Executor(std::uint32_t threads) : pool_(threads) {
  exec_.struct_size = sizeof exec_;
  exec_.device = DLDevice{kDLCPU, 0};
  exec_.parallel_for = &ThreadPool::parallel_for;
  exec_.pool = &pool_;
  exec_.num_workers = pool_.workers();
}

void Executor::grow(std::size_t bytes) {
  if (bytes <= exec_.workspace_size) return;
  exec_.workspace = workspace_.reserve(bytes);
  exec_.workspace_size = bytes;
}

void Executor::check(tilec_status status) {
  if (status != TILEC_OK) throw std::runtime_error(minilm_kernels_last_error());
}

}  // namespace minilm
