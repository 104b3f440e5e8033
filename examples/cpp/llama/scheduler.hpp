// Continuous batching: which tokens of which sequences a step has.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "model.hpp"

namespace llama {

struct Request {
  std::vector<std::int32_t> prompt;
  std::int64_t most = 0;  // new tokens
  Sampling sampling;
};

// Seconds spent in steps and the tokens that they took.
struct Spent {
  double seconds = 0;
  std::int64_t tokens = 0;
  std::vector<double> steps, gaps;  // seconds of each, and those in front of it in which a device was not at work
};

// Tokens of prompts, those among them that the cache had already, and those of all steps.
struct Counts {
  std::int64_t prompts = 0, reused = 0, computed = 0;
};

class Scheduler {
 public:
  // At most `chunk` tokens a step. `stop`: an id that ends a sequence, or -1.
  Scheduler(Model& model, std::int64_t chunk, std::int32_t stop) : model_(model), chunk_(chunk), stop_(stop) {}

  // Answers come in the order of requests. Throws std::invalid_argument for a request that can never be served.
  void add(const Request& request);
  // Runs until all requests are served: their new tokens.
  std::vector<std::vector<std::int32_t>> run();

  // In steps that had tokens of prompts, and in those that had none.
  const Spent& prefill() const { return prefill_; }
  const Spent& decode() const { return decode_; }
  const Counts& counts() const { return counts_; }

 private:
  struct Sequence {
    std::size_t number;              // of its request
    std::vector<std::int32_t> ids;   // prompt and new tokens; -1 - i: sampled for row i of the last step that was started
    std::vector<std::int32_t> pages;
    std::int64_t done = 0;           // tokens that the cache has
    std::int64_t prompt, most;
    Sampling sampling;
    bool is_stopped = false;
    bool is_decoding() const { return done >= prompt; }
    bool is_complete() const { return is_stopped || static_cast<std::int64_t>(ids.size()) - prompt == most; }
  };
  using Shared = std::shared_ptr<Sequence>;

  // A step that has been started: the sequences it samples tokens of, and where these go.
  struct Flight {
    std::vector<std::pair<Shared, std::size_t>> places;
    std::chrono::steady_clock::time_point begin;
    std::int64_t tokens;
    bool is_decode;
  };

  void admit();
  // Adds what fits of a sequence to a step; the tokens added.
  std::int64_t take(const Sequence& sequence, std::int64_t room, Step& step);
  void launch();
  void land();
  void keep_time(const Flight& flight, const Sampled& sampled);
  void retire();

  Model& model_;
  std::int64_t chunk_;
  std::int32_t stop_;
  std::deque<Sequence> waiting_;
  std::vector<Shared> running_;
  std::deque<Flight> flights_;
  std::vector<std::vector<std::int32_t>> answers_;
  Spent prefill_, decode_;
  Counts counts_;
  std::chrono::steady_clock::time_point landed_{};
};

}  // namespace llama
