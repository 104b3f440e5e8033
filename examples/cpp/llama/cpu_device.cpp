#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

#include <sys/mman.h>

#include "device.hpp"

namespace llama {
namespace {

constexpr std::size_t kAlignment = 64, kHugePage = std::size_t{2} << 20;

struct Free {
  void operator()(void* at) const { std::free(at); }
};

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(std::uint32_t threads) {
    exec_.struct_size = sizeof exec_;
    exec_.device = DLDevice{kDLCPU, 0};
    exec_.num_workers = threads;
  }

  void* allocate(std::size_t bytes) override {
    const std::size_t alignment = bytes < kHugePage ? kAlignment : kHugePage;
    const std::size_t size = (bytes + alignment - 1) / alignment * alignment;
    owned_.emplace_back(std::aligned_alloc(alignment, size == 0 ? alignment : size));
    if (owned_.back() == nullptr) throw std::bad_alloc();
    if (alignment == kHugePage) ::madvise(owned_.back().get(), size, MADV_HUGEPAGE);  // ordinary pages do as well
    return owned_.back().get();
  }

  void upload(void* to, const void* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }
  void download(void* to, const void* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }
  const tilec_exec& exec() const override { return exec_; }

 private:
  tilec_exec exec_{};
  std::vector<std::unique_ptr<void, Free>> owned_;
};

}  // namespace

std::unique_ptr<Device> make_cpu(std::uint32_t threads) { return std::make_unique<CpuDevice>(threads); }

}  // namespace llama
