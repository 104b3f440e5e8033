// The model: which kernel runs on what, in which order.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cache.hpp"
#include "config.hpp"
#include "group.hpp"
#include "kernels.hpp"
#include "step.hpp"
#include "weights.hpp"

namespace llama {

// What a step has sampled, and the seconds between the kernels of the step in front of it and its own, on a device that
// is not the host.
struct Sampled {
  std::vector<std::int32_t> ids;  // for each of the step's `rows`
  double gap = 0;
};

class Model {
 public:
  // The share of a model of `folder` that `device` has, with a cache of `pages` pages. Throws std::runtime_error.
  Model(const std::string& folder, Precision precision, std::int64_t pages, Device& device, Share share);

  const Config& config() const { return config_; }
  Cache& cache() { return cache_; }
  std::int64_t positions() const { return positions_; }  // that a sequence may have
  std::int64_t ahead() const { return device_.ahead(); }

  // Brings the step's tokens into the cache. The logits of its `rows`, (rows, vocabulary) in float32, in host
  // memory until the next call.
  const std::vector<float>& run(const Step& step);

  // Does the same and samples the next token of each of `rows`, without waiting for them: ahead() steps may be started
  // before `finish` is asked for the first of those that it has not given. Keeps step's ids of what is not known yet.
  void start(const Step& step);
  Sampled finish();

 private:
  // Activations, rows of the step's tokens.
  enum Slot { kNumbers, kIds, kStream, kNextStream, kNormed, kQkv, kQueries, kContext, kProjected, kGateUp, kInner, kLast,
              kLogits, kUnpacked, kKeys, kValues, kSums, kScores, kShares, kChosen, kOffsets, kTokens, kOfPairs, kGathered,
              kMixed, kShared, kGate, kRounded, kRoundedBy, kSlots };
  static constexpr std::size_t kAligned = 4;  // numbers: kernels read 16 bytes at once
  // What a step uploads, in one piece.
  enum Number { kGiven, kPositions, kPlaces, kTable, kBounds, kKeyBounds, kLengths, kRows, kTemperature, kTopK, kTopP,
                kSeeds, kDraws, kNumberKinds };

  // Memory of steps: those that are made again by a record have addresses of their own.
  struct Rooms {
    explicit Rooms(Device& device) : buffers(kSlots, Buffer(device)) {}
    std::vector<Buffer> buffers;
    std::function<void()> record;
    bool is_sized = false;
  };

  // Extents of a step. The first `singles` sequences have one token each, and attention of their own.
  struct Shape {
    std::int64_t tokens = 0, sequences = 0, rows = 0, width = 0, singles = 0, keys = 0;
    std::int32_t most = 0, most_keys = 0;  // tokens and keys of the other sequence that has most
  };

  struct Started {
    std::int64_t begin, end, landed, number;  // marks: of its kernels, of its ids on the host; and which step it is
    std::size_t rows;
  };

  void* room(Slot slot, std::int64_t elements, Type type);
  Tensor rows(Slot slot, std::int64_t columns);
  // What products of 8-bit floats read: rows rounded to them, and a scale for each. Norms and activations whose only readers
  // are products write them; `round_rows` gives those, and rounds others.
  bool rounds() const { return precision_.form == Form::kFloat8; }
  Tensor rounded(std::int64_t count, std::int64_t inputs);
  std::pair<Tensor, Tensor> round_rows(Tensor in, std::int64_t inputs);
  Tensor rounded_by(std::int64_t count) { return {room(kRoundedBy, count, Type::kFloat32), Type::kFloat32, {count}}; }
  // What add_and_norm has made for products.
  Tensor normed() { return rounds() ? rounded(shape_.tokens, config_.hidden) : rows(kNormed, config_.hidden); }
  Tensor gain(const void* data, std::int64_t count) const { return {data, type_, {count}}; }
  std::string kernel(const char* name) const { return std::string(name) + "_" + name_of(type_); }
  std::string norm(const char* name) const;

  void measure(const Step& step);
  void upload(const Step& step);
  // Some of the step's numbers, `from` the one of this place on.
  Tensor numbers(Number which, std::initializer_list<std::int64_t> shape, Type type = Type::kInt32,
                 std::int64_t from = 0) const;
  std::int32_t* landing(std::int64_t step) const { return landed_ + step % (device_.ahead() + 1) * most_rows_; }
  void forward();
  void embed();
  void linear(Tensor in, const Matrix& matrix, Tensor out);
  void attend(const Layer& layer, std::size_t number);
  // projected = MLP of normed
  void feed_forward(const Layer& layer);
  // out = down(silu(gate(in)) * up(in)), row by row with the weights of its expert where rows of experts begin at `offsets`
  void gated(const Mlp& mlp, Tensor in, Tensor out, const Tensor* offsets);
  void multiply(Tensor in, const Matrix& matrix, Tensor out, const Tensor* offsets);
  void mix(const Layer& layer);
  // stream += projected, which is the sum of what all shares have; normed = norm(stream) * gain, rounded where none but
  // products read it
  void add_and_norm(const void* gain, bool is_for_products);
  // The logits of the step's rows, (rows, vocabulary).
  Tensor score();
  void sample();

  // attention.cpp
  void choose_attention();
  std::string cached_kernel(const char* name) const;
  Tensor cached(const void* data) const;
  Tensor cached_by_row(const void* data) const;
  Tensor grouped(const void* data, std::int64_t tokens) const;
  void attend_paged(std::size_t layer, const void* queries, void* context);
  void attend_singles(std::size_t layer, const void* queries, void* context);
  void attend_gathered(std::size_t layer, const void* queries, void* context);

  Share share_;
  Config config_;
  Type type_;
  Device& device_;
  Kernels kernels_;
  Precision precision_;
  Weights weights_;
  Cache cache_;
  std::int64_t positions_, most_rows_;
  bool splits_ = false;  // attention has a kernel for sequences of one token
  void *cos_ = nullptr, *sin_ = nullptr, *chosen_ = nullptr;
  std::int32_t* landed_ = nullptr;
  Rooms plain_;
  std::map<std::pair<std::int64_t, std::int64_t>, Rooms> recorded_;  // by sequences and pages of the longest
  Rooms* rooms_ = &plain_;
  Shape shape_;
  std::array<std::size_t, kNumberKinds> offsets_{};
  std::vector<std::int32_t> joined_;
  std::deque<Started> started_;
  std::int64_t steps_ = 0, last_end_ = 0;
  std::vector<float> logits_;
  std::vector<char> stored_;
};

}  // namespace llama
