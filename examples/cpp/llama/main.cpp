// A decoder-only language model: token ids on stdin, a prompt a line; new token ids on stdout, a line for each.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <algorithm>
#include <fstream>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "model.hpp"
#include "scheduler.hpp"

namespace {

constexpr const char* kUsage =
    "usage: llama FOLDER [--precision float32|bfloat16|float16|q4_0|fp8] [--threads N] [--ranks N] [--tokens N] [--cache TOKENS]\n"
    "             [--cache-type same|fp8] [--chunk TOKENS] [--temperature T] [--top-k K] [--top-p P] [--seed S] [--stop ID]\n"
    "             [--logits FILE] [--times] [--stats] [--device cpu|cuda|cuda:NUMBER]\n"
    "stdin: prompts of token ids, one a line; stdout: the new ids of each.\n"
    "--logits: the logits of all tokens of the prompts instead, float32, and no new ids.";

struct Options {
  std::string folder, precision = "bfloat16", cache_type = "same", logits, device = "cpu";
  std::int64_t threads = 0, ranks = 1, tokens = 32, cache = 4096, chunk = 512, stop = -1;
  llama::Sampling sampling;
  bool times = false, stats = false;
};

double number(const std::string& option, const std::string& text, double low, double high) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(value >= low && value <= high)) {
    std::ostringstream message;
    message << option << " takes a number from " << low << " to " << high << ", not \"" << text << "\"";
    throw std::invalid_argument(message.str());
  }
  return value;
}

void set(Options& options, const std::string& name, const std::string& text) {
  const auto integer = [&](std::int64_t low, std::int64_t high) {
    const auto value = number(name, text, static_cast<double>(low), static_cast<double>(high));
    if (value != static_cast<double>(static_cast<std::int64_t>(value)))
      throw std::invalid_argument(name + " takes an integer, not " + text);
    return static_cast<std::int64_t>(value);
  };
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  if (name == "--precision") options.precision = text;
  else if (name == "--cache-type") options.cache_type = text;
  else if (name == "--logits") options.logits = text;
  else if (name == "--device") options.device = text;
  else if (name == "--threads") options.threads = integer(1, 1024);
  else if (name == "--ranks") options.ranks = integer(1, 64);
  else if (name == "--tokens") options.tokens = integer(1, kMost);
  else if (name == "--cache") options.cache = integer(1, kMost);
  else if (name == "--chunk") options.chunk = integer(1, 1 << 20);
  else if (name == "--stop") options.stop = integer(-1, kMost);
  else if (name == "--seed") options.sampling.seed = static_cast<std::uint64_t>(integer(0, std::int64_t{1} << 52));
  else if (name == "--top-k") options.sampling.top_k = static_cast<std::int32_t>(integer(0, kMost));
  else if (name == "--temperature") options.sampling.temperature = static_cast<float>(number(name, text, 0, 1e6));
  else if (name == "--top-p") options.sampling.top_p = static_cast<float>(number(name, text, 0, 1));
  else throw std::invalid_argument("unknown option " + name + "\n" + kUsage);
}

Options parse_options(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name.rfind("--", 0) != 0 && options.folder.empty()) {
      options.folder = name;
    } else if (name == "--times") {
      options.times = true;
    } else if (name == "--stats") {
      options.stats = true;
    } else if (i + 1 == argc) {
      throw std::invalid_argument(name + " needs a value\n" + kUsage);
    } else {
      set(options, name, argv[++i]);
    }
  }
  if (options.folder.empty()) throw std::invalid_argument(kUsage);
  return options;
}

using Prompts = std::vector<std::vector<std::int32_t>>;

Prompts read_prompts() {
  Prompts prompts;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    prompts.emplace_back();
    for (std::string word; words >> word;)
      prompts.back().push_back(static_cast<std::int32_t>(number("a prompt", word, 0, 2147483647)));
  }
  return prompts;
}

// The logits of every token of the prompts, prompt by prompt, chunk by chunk.
void write_logits(llama::Model& model, const Options& options, const Prompts& prompts, bool is_first) {
  std::ofstream file(is_first ? options.logits : "/dev/null", std::ios::binary);
  for (const std::vector<std::int32_t>& prompt : prompts) {
    const auto count = static_cast<std::int64_t>(prompt.size());
    if (count > model.positions()) throw std::invalid_argument("a prompt exceeds --cache or the model");
    const std::vector<std::int32_t> pages = model.cache().take({}, llama::pages_for(count)).value().pages;
    for (std::int64_t done = 0; done < count; done += options.chunk) {
      const std::int64_t next = std::min(options.chunk, count - done);
      llama::Step step;
      step.add(prompt.data() + done, prompt.data() + done + next, done, pages, next);
      const std::vector<float>& logits = model.run(step);
      file.write(reinterpret_cast<const char*>(logits.data()), static_cast<std::streamsize>(logits.size() * sizeof(float)));
    }
    model.cache().release(pages);
  }
  if (!file.flush()) throw std::runtime_error("cannot write " + options.logits);
}

void print_times(const llama::Scheduler& scheduler) {
  const auto list = [](const char* name, const std::vector<double>& seconds) {
    std::fprintf(stderr, ", \"%s\": [", name);
    for (std::size_t i = 0; i < seconds.size(); ++i) std::fprintf(stderr, "%s%.7f", i ? ", " : "", seconds[i]);
    std::fprintf(stderr, "]");
  };
  const auto print = [&](const char* name, const llama::Spent& spent) {
    const double rate = spent.seconds > 0 ? static_cast<double>(spent.tokens) / spent.seconds : 0;
    std::fprintf(stderr, "\"%s\": {\"tokens\": %lld, \"seconds\": %.6f, \"rate\": %.2f", name,
                 static_cast<long long>(spent.tokens), spent.seconds, rate);
    list("steps", spent.steps), list("gaps", spent.gaps);
  };
  std::fprintf(stderr, "{"), print("prefill", scheduler.prefill());
  std::fprintf(stderr, "}, "), print("decode", scheduler.decode());
  std::fprintf(stderr, "}}\n");
}

void print_stats(const llama::Counts& counts) {
  std::fprintf(stderr, "{\"prompts\": %lld, \"reused\": %lld, \"computed\": %lld}\n", static_cast<long long>(counts.prompts),
               static_cast<long long>(counts.reused), static_cast<long long>(counts.computed));
}

void generate(llama::Model& model, const Options& options, const Prompts& prompts, bool is_first) {
  llama::Scheduler scheduler(model, options.chunk, static_cast<std::int32_t>(options.stop));
  for (const std::vector<std::int32_t>& prompt : prompts) scheduler.add({prompt, options.tokens, options.sampling});
  const Prompts answers = scheduler.run();
  if (!is_first) return;
  for (const std::vector<std::int32_t>& answer : answers) {
    for (std::size_t i = 0; i < answer.size(); ++i) std::printf("%s%d", i ? " " : "", answer[i]);
    std::printf("\n");
  }
  if (std::fflush(stdout) != 0) throw std::runtime_error("cannot write the answers");
  if (options.times) print_times(scheduler);
  if (options.stats) print_stats(scheduler.counts());
}

// Ranks on GPUs have the device that is named and those behind it.
std::unique_ptr<llama::Device> make_device(const Options& options, std::int64_t rank) {
  const std::string& name = options.device;
  if (name == "cpu") return llama::make_cpu(static_cast<std::uint32_t>(options.threads));
  if (name.rfind("cuda", 0) != 0 || (name.size() > 4 && name[4] != ':'))
    throw std::invalid_argument("--device takes cpu, cuda or cuda:NUMBER, not " + name);
  const double first = name == "cuda" ? 0 : number("--device cuda:", name.substr(5), 0, 63);
  return llama::make_cuda(static_cast<int>(first) + static_cast<int>(rank));
}

std::unique_ptr<llama::Group> make_group(const Options& options) {
  if (options.ranks == 1) return nullptr;
  return options.device == "cpu" ? llama::make_threads(options.ranks) : llama::make_nccl(options.ranks);
}

// Says what has been thrown: the status of the process.
int report() {
  try {
    throw;
  } catch (const std::invalid_argument& error) {
    return std::fprintf(stderr, "llama: %s\n", error.what()), 2;
  } catch (const std::exception& error) {
    return std::fprintf(stderr, "llama: %s\n", error.what()), 1;
  }
}

// Every rank reads the same prompts and makes the same steps: what decides about them are tokens, and logits are the same
// bits in all ranks. An error of one ends the process, for the others may wait for it.
void serve(const Options& options, const Prompts& prompts, llama::Share share) try {
  const auto device = make_device(options, share.rank);
  if (share.group != nullptr) share.group->join(share.rank);
  llama::Model model(options.folder, llama::Precision::named(options.precision, options.cache_type),
                     llama::pages_for(options.cache), *device, share);
  (options.logits.empty() ? generate : write_logits)(model, options, prompts, share.rank == 0);
} catch (...) {
  std::_Exit(report());
}

}  // namespace

int main(int argc, char** argv) try {
  Options options = parse_options(argc, argv);
  if (options.ranks > 1 && options.threads == 0) options.threads = std::thread::hardware_concurrency();
  if (options.ranks > 1) options.threads = std::max<std::int64_t>(options.threads / options.ranks, 1);
  const Prompts prompts = read_prompts();
  const auto group = make_group(options);
  std::vector<std::thread> ranks;
  for (std::int64_t rank = 0; rank < options.ranks; ++rank)
    ranks.emplace_back(serve, options, prompts, llama::Share{group.get(), rank, options.ranks});
  for (std::thread& rank : ranks) rank.join();
} catch (...) {
  return report();
}
