#include <array>
#include <stdexcept>
#include <string>
#include <vector>

#include "foreign.hpp"
#include "group.hpp"

namespace llama {
namespace {

// As nccl.h has them.
struct Id {
  std::array<char, 128> bytes;
};
constexpr int kFloat16 = 6, kFloat32 = 7, kBfloat16 = 9, kSum = 0;

class Nccl final : public Group {
 public:
  explicit Nccl(std::int64_t ranks) : comms_(static_cast<std::size_t>(ranks)) { call("ncclGetUniqueId", &id_); }

  void join(std::int64_t rank) override {
    call("ncclCommInitRank", &comm(rank), static_cast<int>(comms_.size()), id_, static_cast<int>(rank));
  }

  // On the stream of the rank's kernels, into a graph where it captures one.
  void sum(std::int64_t rank, void* data, std::int64_t count, Type type, const tilec_exec& exec) override {
    call("ncclAllReduce", static_cast<const void*>(data), data, static_cast<std::size_t>(count),
         type == Type::kFloat32 ? kFloat32 : type == Type::kFloat16 ? kFloat16 : kBfloat16, kSum, comm(rank), exec.stream);
  }

 private:
  void*& comm(std::int64_t rank) { return comms_[static_cast<std::size_t>(rank)]; }

  template <typename... Arguments>
  void call(const char* name, Arguments... arguments) const {
    const int result = library_.call<int>(name, arguments...);
    if (result != 0)
      throw std::runtime_error(std::string(name) + " failed: " + library_.call<const char*>("ncclGetErrorString", result));
  }

  Foreign library_{"libnccl.so.2", "--ranks on GPUs needs NCCL"};
  Id id_{};
  std::vector<void*> comms_;
};

}  // namespace

std::unique_ptr<Group> make_nccl(std::int64_t ranks) { return std::make_unique<Nccl>(ranks); }

}  // namespace llama
