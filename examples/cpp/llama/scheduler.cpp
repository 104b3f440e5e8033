#include "scheduler.hpp"

#include <algorithm>
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
  waiting_.push_back({answers_.size(), request.prompt, {}, 0, prompt, request.most, request.sampling});
  answers_.emplace_back();
}

// A sequence gets the pages of its whole length when it starts, so that it never has to be put back. Those of a prompt that
// another sequence began with are shared at once: the other one is in front in all steps until they are filled.
void Scheduler::admit() {
  while (!waiting_.empty()) {
    Sequence& next = waiting_.front();
    if (static_cast<std::int64_t>(running_.size()) >= chunk_) return;
    std::optional<Cache::Taken> taken = model_.cache().take(next.ids, pages_for(next.prompt + next.most));
    if (!taken) return;
    next.pages = std::move(taken->pages);
    next.done = taken->known;
    counts_.prompts += next.prompt;
    counts_.reused += taken->known;
    running_.push_back(std::make_shared<Sequence>(std::move(next)));
    waiting_.pop_front();
  }
}

std::int64_t Scheduler::take(const Sequence& sequence, std::int64_t room, Step& step) {
  const auto known = static_cast<std::int64_t>(sequence.ids.size());
  const std::int64_t count = std::min(known - sequence.done, room);
  if (count == 0) return 0;
  const std::int32_t* begin = sequence.ids.data() + sequence.done;
  const std::int64_t wanted = sequence.done + count == known ? 1 : 0;
  step.add(begin, begin + count, sequence.done, sequence.pages, wanted, sequence.sampling);
  return count;
}

// Sequences that decode come first: a prompt takes what room they leave.
void Scheduler::launch() {
  std::stable_partition(running_.begin(), running_.end(), [](const Shared& s) { return s->is_decoding(); });
  Step step;
  Flight flight{{}, std::chrono::steady_clock::now(), 0, running_.back()->is_decoding()};
  for (const Shared& sequence : running_) {
    sequence->done += take(*sequence, chunk_ - step.tokens(), step);
    if (sequence->done < static_cast<std::int64_t>(sequence->ids.size())) continue;
    flight.places.emplace_back(sequence, sequence->ids.size());
    sequence->ids.push_back(-static_cast<std::int32_t>(flight.places.size()));
  }
  flight.tokens = step.tokens();
  model_.start(step);
  flights_.push_back(std::move(flight));
}

// A token behind the one that stops its sequence was sampled before that was known, and does not count.
void Scheduler::land() {
  const Sampled sampled = model_.finish();
  for (std::size_t i = 0; i < sampled.ids.size(); ++i) {
    auto& [sequence, place] = flights_.front().places[i];
    if (sequence->is_stopped) continue;
    sequence->ids[place] = sampled.ids[i];
    sequence->is_stopped = sampled.ids[i] == stop_;
    if (sequence->is_stopped) sequence->ids.resize(place + 1);
    if (!sequence->is_stopped && place + 1 != static_cast<std::size_t>(sequence->prompt + sequence->most)) continue;
    answers_[sequence->number].assign(sequence->ids.begin() + static_cast<std::ptrdiff_t>(sequence->prompt),
                                      sequence->ids.end());
  }
  keep_time(flights_.front(), sampled);
  flights_.pop_front();
}

void Scheduler::keep_time(const Flight& flight, const Sampled& sampled) {
  const auto now = std::chrono::steady_clock::now();
  Spent& spent = flight.is_decode ? decode_ : prefill_;
  spent.steps.push_back(std::chrono::duration<double>(now - std::max(flight.begin, landed_)).count());
  spent.seconds += spent.steps.back();
  spent.gaps.push_back(sampled.gap);
  spent.tokens += flight.tokens;
  counts_.computed += flight.tokens;
  landed_ = now;
}

// Pages of a sequence whose last step is under way may be given on: later steps write to them later.
void Scheduler::retire() {
  const auto kept = std::stable_partition(running_.begin(), running_.end(), [](const Shared& s) { return !s->is_complete(); });
  std::for_each(kept, running_.end(), [&](const Shared& s) { model_.cache().release(s->pages); });
  running_.erase(kept, running_.end());
}

std::vector<std::vector<std::int32_t>> Scheduler::run() {
  for (admit(); !running_.empty() || !flights_.empty(); admit()) {
    if (!running_.empty()) launch();
    retire();
    if (running_.empty() || static_cast<std::int64_t>(flights_.size()) > model_.ahead()) land();
    retire();
  }
  return std::exchange(answers_, {});
}

}  // namespace llama
