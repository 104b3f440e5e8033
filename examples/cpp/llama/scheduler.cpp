#include "scheduler.hpp"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <utility>

namespace llama {

void Scheduler::add(const Request& request) {
  const auto prompt = static_cast<std::int64_t>(request.prompt.size());
  if (prompt == 0) throw std::invalid_argument("a prompt has no tokens");
  if (request.most < 1) throw std::invalid_argument("a request asks for no tokens");
  for (const std::int32_t id : request.prompt)
    if (id < 0 || id >= model_.config().vocabulary)
      throw std::invalid_argument("token " + std::to_string(id) + " is not in the vocabulary");
  if (prompt + request.most > model_.positions())
    throw std::invalid_argument("a prompt of " + std::to_string(prompt) + " tokens and " +
                                std::to_string(request.most) + " new ones exceed the " +
                                std::to_string(model_.positions()) + " that model and --cache have room for");
  waiting_.push_back({answers_.size(), request.prompt, {}, 0, prompt, request.most, Sampler(request.sampling)});
  answers_.emplace_back();
}

// A sequence gets the pages of its whole length when it starts, so that it never has to be put back.
void Scheduler::admit() {
  while (!waiting_.empty()) {
    Sequence& next = waiting_.front();
    const std::int64_t pages = pages_for(next.prompt + next.most);
    if (pages > model_.cache().free_pages() || static_cast<std::int64_t>(running_.size()) >= chunk_) return;
    next.pages = model_.cache().take(pages);
    running_.push_back(std::move(next));
    waiting_.pop_front();
  }
}

std::int64_t Scheduler::take(Sequence& sequence, std::int64_t room, Step& step) {
  const auto known = static_cast<std::int64_t>(sequence.ids.size());
  const std::int64_t count = std::min(known - sequence.done, room);
  if (count == 0) return 0;
  const std::int32_t* begin = sequence.ids.data() + sequence.done;
  step.add(begin, begin + count, sequence.done, sequence.pages, sequence.done + count == known ? 1 : 0);
  return count;
}

bool Scheduler::is_complete(const Sequence& sequence) const {
  const auto made = static_cast<std::int64_t>(sequence.ids.size()) - sequence.prompt;
  return made == sequence.most || (made > 0 && sequence.ids.back() == stop_);
}

// Sequences that decode come first: a prompt takes what room they leave.
void Scheduler::step_once() {
  std::stable_partition(running_.begin(), running_.end(), [](const Sequence& s) { return s.is_decoding(); });
  Step step;
  std::vector<std::pair<Sequence*, std::int64_t>> taken;
  const bool is_decode = running_.back().is_decoding();
  for (Sequence& sequence : running_) {
    const std::int64_t count = take(sequence, chunk_ - step.tokens(), step);
    if (count != 0) taken.emplace_back(&sequence, count);
  }
  const auto begin = std::chrono::steady_clock::now();
  const float* logits = model_.run(step).data();
  for (auto& [sequence, count] : taken) {
    sequence->done += count;
    if (sequence->done < static_cast<std::int64_t>(sequence->ids.size())) continue;
    sequence->ids.push_back(sequence->sampler.pick(logits, model_.config().vocabulary));
    logits += model_.config().vocabulary;
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  (is_decode ? spent_.decode : spent_.prefill) += seconds.count();
  (is_decode ? spent_.decoded : spent_.prefilled) += step.tokens();
}

std::vector<std::vector<std::int32_t>> Scheduler::run() {
  for (admit(); !running_.empty(); admit()) {
    step_once();
    for (Sequence& sequence : running_) {
      if (!is_complete(sequence)) continue;
      model_.cache().release(sequence.pages);
      answers_[sequence.number].assign(sequence.ids.begin() + static_cast<std::ptrdiff_t>(sequence.prompt),
                                       sequence.ids.end());
    }
    running_.erase(std::remove_if(running_.begin(), running_.end(), [&](const Sequence& s) { return is_complete(s); }),
                   running_.end());
  }
  return std::exchange(answers_, {});
}

}  // namespace llama
