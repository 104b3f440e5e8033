// How a backend calls the kernel library: a workspace that grows as calls need, errors as exceptions.
#pragma once

#include <cstddef>

#include "minilm_kernels.h"

namespace minilm {

class Executor {
 public:
  virtual ~Executor() = default;

  // One call of the library: `size_of` is the kernel's workspace function, `kernel` its typed door, both taking
  // the exec first; grows the workspace to what the call needs. Throws std::runtime_error with the library's
  // message.
  template <typename Size, typename Kernel>
  void call(Size size_of, Kernel kernel) {
    std::size_t bytes = 0;
    check(size_of(&exec_, &bytes));
    if (bytes > exec_.workspace_size) {
      exec_.workspace = grow(bytes);
      exec_.workspace_size = bytes;
    }
    check(kernel(&exec_));
  }

 protected:
  static void check(tilec_status status);

  tilec_exec exec_{};

 private:
  // Memory of at least `bytes`, in the place of what it gave before.
  virtual void* grow(std::size_t bytes) = 0;
};

}  // namespace minilm
