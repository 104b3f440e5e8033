#include "thread_pool.hpp"

#include <algorithm>

namespace minilm {
namespace {

// Between two kernels of one forward pass lie microseconds; longer silence means that the batch is over.
constexpr int kSpins = 20000;
// Chunks per worker: enough to even out blocks of unequal cost, few enough to keep neighbours together.
constexpr std::int64_t kChunks = 4;

void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

}  // namespace

ThreadPool::ThreadPool(std::uint32_t workers) {
  for (std::uint32_t worker = 1; worker < workers; ++worker) threads_.emplace_back([this, worker] { work(worker); });
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
    ++generation_;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

tilec_status ThreadPool::parallel_for(void* pool, std::int64_t n, std::int64_t grain, tilec_task task, void* closure) {
  auto& self = *static_cast<ThreadPool*>(pool);
  const std::int64_t share = n / (self.workers() * kChunks);
  self.task_ = task;
  self.closure_ = closure;
  self.end_ = n;
  self.chunk_ = std::max({share, grain, std::int64_t{1}});
  self.next_ = 0;
  if (self.threads_.empty() || n <= self.chunk_) {
    self.run_chunks(0);
    return TILEC_OK;
  }
  self.open_ = true;
  ++self.generation_;
  if (self.sleepers_ > 0) {
    const std::lock_guard<std::mutex> lock(self.mutex_);
    self.wake_.notify_all();
  }
  self.run_chunks(0);
  self.open_ = false;  // who has not come by now finds the door closed
  while (self.inside_ > 0) relax();
  return TILEC_OK;
}

void ThreadPool::run_chunks(std::uint32_t worker) {
  for (std::int64_t begin; (begin = next_.fetch_add(chunk_)) < end_;)
    task_(closure_, worker, begin, std::min(begin + chunk_, end_));
}

// Enters first and looks second: the caller closes first and looks second, so one of the two sees the other.
void ThreadPool::join_job(std::uint32_t worker) {
  ++inside_;
  if (open_) run_chunks(worker);
  --inside_;
}

void ThreadPool::await_job(std::uint64_t seen) {
  for (int spin = 0; spin < kSpins; ++spin) {
    if (generation_ != seen) return;
    relax();
  }
  std::unique_lock<std::mutex> lock(mutex_);
  ++sleepers_;
  wake_.wait(lock, [&] { return generation_ != seen; });
  --sleepers_;
}

void ThreadPool::work(std::uint32_t worker) {
  for (std::uint64_t seen = 0;;) {
    await_job(seen);
    seen = generation_;
    if (stop_) return;
    join_job(worker);
  }
}

}  // namespace minilm
