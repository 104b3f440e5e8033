// The devices that a model is split among: each has some of the heads and of the channels of MLPs, and a thread that makes the
// same steps as the others.
#pragma once

#include <memory>

#include "kernels.hpp"

namespace llama {

class Group {
 public:
  virtual ~Group() = default;

  // Called first, by each rank's thread, whose device is the current one. Throws std::runtime_error.
  virtual void join(std::int64_t) {}

  // data = its sum over all ranks, the same bits in each, in order with the kernels that `exec` runs. Every rank makes
  // the same calls in its own thread, and waits for the others.
  virtual void sum(std::int64_t rank, void* data, std::int64_t count, Type type, const tilec_exec& exec) = 0;
};

// Threads of this process with memory that all of them reach.
std::unique_ptr<Group> make_threads(std::int64_t ranks);
// CUDA devices, by NCCL, libnccl.so.2, which is opened here. Throws std::runtime_error.
std::unique_ptr<Group> make_nccl(std::int64_t ranks);

// Which part of a model a device has.
struct Share {
  Group* group = nullptr;
  std::int64_t rank = 0, ranks = 1;
};

}  // namespace llama
