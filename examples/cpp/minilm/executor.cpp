#include "executor.hpp"

#include <stdexcept>

namespace minilm {

void Executor::check(tilec_status status) {
  if (status != TILEC_OK) throw std::runtime_error(minilm_kernels_last_error());
}

}  // namespace minilm
