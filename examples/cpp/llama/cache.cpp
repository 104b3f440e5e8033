#include "cache.hpp"

#include <algorithm>

namespace llama {
namespace {

std::array<std::int32_t, kPage> tokens_of(const std::vector<std::int32_t>& prompt, std::size_t page) {
  std::array<std::int32_t, kPage> tokens;
  std::copy_n(prompt.begin() + static_cast<std::ptrdiff_t>(page) * kPage, kPage, tokens.begin());
  return tokens;
}

}  // namespace

Cache::Cache(const Config& config, Type type, std::int64_t pages, Device& device)
    : states_(static_cast<std::size_t>(pages)) {
  const std::int64_t bytes = pages * config.key_heads * kPage * config.head_dim * bytes_of(type);
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    keys_.push_back(device.allocate(static_cast<std::size_t>(bytes)));
    values_.push_back(device.allocate(static_cast<std::size_t>(bytes)));
  }
  for (std::size_t page = 0; page < states_.size(); ++page)
    states_[page].place = idle_.insert(idle_.end(), static_cast<std::int32_t>(page));
}

void Cache::use(std::int32_t page) {
  State& state = states_[static_cast<std::size_t>(page)];
  if (state.users++ == 0) idle_.erase(state.place);
}

std::optional<Cache::Taken> Cache::take(const std::vector<std::int32_t>& prompt, std::int64_t count) {
  Taken taken;
  Content content{0, {}};
  for (std::size_t i = 0; (i + 1) * kPage < prompt.size(); ++i) {
    content.tokens = tokens_of(prompt, i);
    const auto found = known_.find(content);
    if (found == known_.end()) break;
    use(found->second);
    taken.pages.push_back(found->second);
    content.before = states_[static_cast<std::size_t>(found->second)].number;
  }
  const std::size_t wanted = static_cast<std::size_t>(count), shared = taken.pages.size();
  if (wanted - shared > idle_.size()) return release(taken.pages), std::nullopt;
  taken.known = static_cast<std::int64_t>(shared) * kPage;
  while (taken.pages.size() < wanted) {
    State& state = states_[static_cast<std::size_t>(taken.pages.emplace_back(idle_.front()))];
    if (state.number != 0) known_.erase(state.content);
    state.number = 0;
    use(taken.pages.back());
  }
  make_known(prompt, taken);
  return taken;
}

void Cache::make_known(const std::vector<std::int32_t>& prompt, const Taken& taken) {
  const auto shared = static_cast<std::size_t>(taken.known / kPage);
  std::int64_t before = shared == 0 ? 0 : states_[static_cast<std::size_t>(taken.pages[shared - 1])].number;
  for (std::size_t i = shared; (i + 1) * kPage <= prompt.size(); ++i) {
    State& state = states_[static_cast<std::size_t>(taken.pages[i])];
    state.content = {before, tokens_of(prompt, i)};
    if (!known_.emplace(state.content, taken.pages[i]).second) return;  // a whole prompt again, whose end is known
    before = state.number = ++last_number_;
  }
}

void Cache::release(const std::vector<std::int32_t>& pages) {
  for (auto page = pages.rbegin(); page != pages.rend(); ++page) {
    State& state = states_[static_cast<std::size_t>(*page)];
    if (--state.users == 0) state.place = idle_.insert(state.number == 0 ? idle_.begin() : idle_.end(), *page);
  }
}

}  // namespace llama
