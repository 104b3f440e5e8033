// The model: which kernel runs on what, in which order.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "cache.hpp"
#include "config.hpp"
#include "kernels.hpp"
#include "step.hpp"
#include "weights.hpp"

namespace llama {

class Model {
 public:
  // A model of `folder` with a cache of `pages` pages. Throws std::runtime_error.
  Model(const std::string& folder, Precision precision, std::int64_t pages, Device& device);

  const Config& config() const { return config_; }
  Cache& cache() { return cache_; }
  std::int64_t positions() const { return positions_; }  // that a sequence may have

  // Brings the step's tokens into the cache. The logits of its `rows`, (rows, vocabulary) in float32, in host
  // memory until the next call.
  const std::vector<float>& run(const Step& step);

 private:
  // Activations, rows of the step's tokens, and what a step uploads.
  enum Slot { kStream, kNextStream, kNormed, kQkv, kQueries, kContext, kProjected, kGateUp, kInner, kLast, kLogits,
              kUnpacked, kIds, kPositions, kSlots, kBounds, kLengths, kTable, kRows, kCount };

  void* room(Slot slot, std::int64_t elements, Type type);
  Tensor upload(Slot slot, const std::vector<std::int32_t>& numbers, std::initializer_list<std::int64_t> shape);
  Tensor rows(Slot slot, std::int64_t columns);
  Tensor gain(const void* data, std::int64_t count) const { return {data, type_, {count}}; }
  std::string kernel(const char* name) const { return std::string(name) + "_" + name_of(type_); }
  std::string norm(const char* name) const;

  // What attention reads of a step, on the device.
  struct Places {
    Tensor positions, slots, table, bounds, lengths;
    std::int32_t most;
  };

  Places upload_places(const Step& step);
  void embed(const Step& step);
  void linear(Tensor in, const Matrix& matrix, Tensor out);
  void attend(const Places& places, const Layer& layer, std::size_t number);
  void feed_forward(const Layer& layer);
  // stream += projected; normed = norm(stream) * gain
  void add_and_norm(const void* gain);
  const std::vector<float>& logits(const Step& step);

  Config config_;
  Precision precision_;
  Type type_;
  Device& device_;
  Kernels kernels_;
  Weights weights_;
  Cache cache_;
  std::int64_t positions_, tokens_ = 0;
  void *cos_ = nullptr, *sin_ = nullptr;
  std::vector<Buffer> buffers_;
  std::vector<float> logits_;
  std::vector<std::uint16_t> words_;
};

}  // namespace llama
