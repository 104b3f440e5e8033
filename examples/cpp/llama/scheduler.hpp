// Continuous batching: which tokens of which sequences a step has.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "model.hpp"
#include "sampler.hpp"

namespace llama {

struct Request {
  std::vector<std::int32_t> prompt;
  std::int64_t most = 0;  // new tokens
  Sampling sampling;
};

// Seconds spent in steps that had tokens of prompts, and in those that had none, and the tokens that they took.
struct Spent {
  double prefill = 0, decode = 0;
  std::int64_t prefilled = 0, decoded = 0;
};

class Scheduler {
 public:
  // At most `chunk` tokens a step. `stop`: an id that ends a sequence, or -1.
  Scheduler(Model& model, std::int64_t chunk, std::int32_t stop) : model_(model), chunk_(chunk), stop_(stop) {}

  // Answers come in the order of requests. Throws std::invalid_argument for a request that can never be served.
  void add(const Request& request);
  // Runs until all requests are served: their new tokens.
  std::vector<std::vector<std::int32_t>> run();

  const Spent& spent() const { return spent_; }

 private:
  struct Sequence {
    std::size_t number;              // of its request
    std::vector<std::int32_t> ids;   // prompt and new tokens
    std::vector<std::int32_t> pages;
    std::int64_t done = 0;           // tokens that the cache has
    std::int64_t prompt, most;
    Sampler sampler;
    bool is_decoding() const { return done >= prompt; }
  };

  void admit();
  // Adds what fits of a sequence to a step; the tokens added.
  std::int64_t take(Sequence& sequence, std::int64_t room, Step& step);
  void step_once();
  bool is_complete(const Sequence& sequence) const;

  Model& model_;
  std::int64_t chunk_;
  std::int32_t stop_;
  std::deque<Sequence> waiting_;
  std::vector<Sequence> running_;
  std::vector<std::vector<std::int32_t>> answers_;
  Spent spent_;
};

}  // namespace llama
