#include <algorithm>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <vector>

#include "group.hpp"
#include "numbers.hpp"

namespace llama {
namespace {

class Threads final : public Group {
 public:
  explicit Threads(std::int64_t ranks) : parts_(static_cast<std::size_t>(ranks)) {}

  // Each rank adds up its part of the elements, for all.
  void sum(std::int64_t rank, void* data, std::int64_t count, Type type, const tilec_exec&) override {
    const auto ranks = static_cast<std::int64_t>(parts_.size());
    const std::int64_t begin = count * rank / ranks, bytes = begin * bytes_of(type);
    std::vector<float> total(static_cast<std::size_t>(count * (rank + 1) / ranks - begin)), part(total.size());
    parts_[static_cast<std::size_t>(rank)] = static_cast<char*>(data);
    meet();
    for (const char* from : parts_) {
      to_float32(stored_name(type), from + bytes, part.size(), part.data());
      std::transform(part.begin(), part.end(), total.begin(), total.begin(), std::plus<>());
    }
    for (char* to : parts_) store(total.data(), total.size(), type, to + bytes);
    meet();
  }

 private:
  void meet() {
    std::unique_lock<std::mutex> lock(mutex_);
    const std::int64_t round = round_;
    if (++here_ == parts_.size()) here_ = 0, ++round_, changed_.notify_all();
    changed_.wait(lock, [&] { return round_ != round; });
  }

  std::vector<char*> parts_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t here_ = 0;
  std::int64_t round_ = 0;
};

}  // namespace

std::unique_ptr<Group> make_threads(std::int64_t ranks) { return std::make_unique<Threads>(ranks); }

}  // namespace llama
