// The threads of one engine, in the form that a tilec library takes them.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "tilec/tilec.h"

namespace minilm {

// `workers` threads in all, the caller's included (worker 0). Workers spin for a short while after a job, since
// the next kernel of a forward pass follows at once, then sleep. One job at a time, from one thread.
class ThreadPool {
 public:
  explicit ThreadPool(std::uint32_t workers);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  std::uint32_t workers() const { return static_cast<std::uint32_t>(threads_.size()) + 1; }

  // tilec_exec::parallel_for with tilec_exec::pool = this.
  static tilec_status parallel_for(void* pool, std::int64_t n, std::int64_t grain, tilec_task task, void* closure);

 private:
  void work(std::uint32_t worker);
  void join_job(std::uint32_t worker);
  void run_chunks(std::uint32_t worker);
  void await_job(std::uint64_t seen);

  // The job; written only while `open_` is false and nobody is inside.
  tilec_task task_ = nullptr;
  void* closure_ = nullptr;
  std::int64_t end_ = 0, chunk_ = 1;
  alignas(64) std::atomic<std::int64_t> next_{0};
  alignas(64) std::atomic<bool> open_{false};
  std::atomic<std::uint32_t> inside_{0};
  alignas(64) std::atomic<std::uint64_t> generation_{0};
  std::atomic<bool> stop_{false};
  std::atomic<std::uint32_t> sleepers_{0};
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::thread> threads_;
};

}  // namespace minilm
