// Where an encoder runs: the memory of weights and activations, and the kernels that work on them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "batch.hpp"

namespace minilm {

// Activations: rows of tokens, in the type of the backend and in its memory.
enum Slot { kStream, kAttended, kWide, kContext, kProjected, kInnerRows, kSlots };

// What the embedding reads.
struct Tables {
  const void *words, *positions, *types, *gain, *shift;
};

// Weights go in once, activations live in slots; both are the backend's own. Calls throw std::runtime_error with
// the message of the library or of the driver.
class Backend {
 public:
  virtual ~Backend() = default;

  // Weights of a product, each (features, inputs) in float32, stacked; in the layout and type that `linear` takes.
  virtual const void* matrix(std::initializer_list<const float*> parts, std::int64_t features, std::int64_t inputs) = 0;
  // Vectors of `count` numbers behind one another: biases, gains, tables.
  virtual const void* vector(std::initializer_list<const float*> parts, std::int64_t count) = 0;

  // Makes room for a batch and brings it to where kernels read it.
  virtual void begin(const Batch& batch) = 0;
  virtual void embed(const Tables& tables, Slot out) = 0;
  // out = in * matrix^T + bias, with GELU if asked for.
  virtual void linear(Slot in, const void* matrix, const void* bias, Slot out, std::int64_t inputs,
                      std::int64_t features, bool gelu = false) = 0;
  // Queries, keys and values are the three thirds of each row of `in`.
  virtual void attend(Slot in, Slot out) = 0;
  virtual void add_norm(Slot in, Slot residual, const void* gain, const void* shift, Slot out) = 0;
  // Unit sentence vectors in host memory, sentences x kHidden, valid until the next call.
  virtual const float* pool(Slot in) = 0;
};

// Numbers in a row of each slot.
constexpr std::int64_t kWidths[kSlots] = {kHidden, kHidden, kFused, kHidden, kHidden, kInner};

}  // namespace minilm
