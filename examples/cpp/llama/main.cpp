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
#include <vector>

#include "model.hpp"
#include "scheduler.hpp"

namespace {

constexpr const char* kUsage =
    "usage: llama FOLDER [--precision float32|bfloat16|q4_0] [--threads N] [--tokens N] [--cache TOKENS] [--chunk TOKENS]\n"
    "             [--temperature T] [--top-k K] [--top-p P] [--seed S] [--stop ID] [--logits FILE] [--times]\n"
    "stdin: prompts of token ids, one a line; stdout: the new ids of each.\n"
    "--logits: the logits of all tokens of the prompts instead, float32, and no new ids.";

struct Options {
  std::string folder, precision = "bfloat16", logits;
  std::int64_t threads = 0, tokens = 32, cache = 4096, chunk = 512, stop = -1;
  llama::Sampling sampling;
  bool times = false;
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
  else if (name == "--logits") options.logits = text;
  else if (name == "--threads") options.threads = integer(1, 1024);
  else if (name == "--tokens") options.tokens = integer(1, kMost);
  else if (name == "--cache") options.cache = integer(1, kMost);
  else if (name == "--chunk") options.chunk = integer(1, 1 << 20);
  else if (name == "--stop") options.stop = integer(-1, kMost);
  else if (name == "--seed") options.sampling.seed = static_cast<std::uint64_t>(integer(0, std::int64_t{1} << 52));
  else if (name == "--top-k") options.sampling.top_k = integer(0, kMost);
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
    } else if (i + 1 == argc) {
      throw std::invalid_argument(name + " needs a value\n" + kUsage);
    } else {
      set(options, name, argv[++i]);
    }
  }
  if (options.folder.empty()) throw std::invalid_argument(kUsage);
  return options;
}

std::vector<std::vector<std::int32_t>> read_prompts() {
  std::vector<std::vector<std::int32_t>> prompts;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    prompts.emplace_back();
    for (std::string word; words >> word;)
      prompts.back().push_back(static_cast<std::int32_t>(number("a prompt", word, 0, 2147483647)));
  }
  return prompts;
}

// The logits of every token of the prompts, prompt by prompt, chunk by chunk.
void write_logits(llama::Model& model, const Options& options, const std::vector<std::vector<std::int32_t>>& prompts) {
  std::ofstream file(options.logits, std::ios::binary);
  for (const std::vector<std::int32_t>& prompt : prompts) {
    const auto count = static_cast<std::int64_t>(prompt.size());
    if (count > model.positions()) throw std::invalid_argument("a prompt exceeds --cache or the model");
    const std::vector<std::int32_t> pages = model.cache().take(llama::pages_for(count));
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

void print_times(const llama::Spent& spent) {
  const auto rate = [](std::int64_t tokens, double seconds) { return seconds > 0 ? static_cast<double>(tokens) / seconds : 0; };
  std::fprintf(stderr, "{\"prefill\": {\"tokens\": %lld, \"seconds\": %.6f, \"rate\": %.2f}, ",
               static_cast<long long>(spent.prefilled), spent.prefill, rate(spent.prefilled, spent.prefill));
  std::fprintf(stderr, "\"decode\": {\"tokens\": %lld, \"seconds\": %.6f, \"rate\": %.2f}}\n",
               static_cast<long long>(spent.decoded), spent.decode, rate(spent.decoded, spent.decode));
}

void generate(llama::Model& model, const Options& options, const std::vector<std::vector<std::int32_t>>& prompts) {
  llama::Scheduler scheduler(model, options.chunk, static_cast<std::int32_t>(options.stop));
  for (const std::vector<std::int32_t>& prompt : prompts) scheduler.add({prompt, options.tokens, options.sampling});
  for (const std::vector<std::int32_t>& answer : scheduler.run()) {
    for (std::size_t i = 0; i < answer.size(); ++i) std::printf("%s%d", i ? " " : "", answer[i]);
    std::printf("\n");
  }
  if (std::fflush(stdout) != 0) throw std::runtime_error("cannot write the answers");
  if (options.times) print_times(scheduler.spent());
}

void serve(const Options& options) {
  const std::vector<std::vector<std::int32_t>> prompts = read_prompts();
  const auto device = llama::make_cpu(static_cast<std::uint32_t>(options.threads));
  llama::Model model(options.folder, llama::Precision::named(options.precision), llama::pages_for(options.cache), *device);
  options.logits.empty() ? generate(model, options, prompts) : write_logits(model, options, prompts);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    serve(parse_options(argc, argv));
    return 0;
  } catch (const std::invalid_argument& error) {
    std::fprintf(stderr, "llama: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "llama: %s\n", error.what());
    return 1;
  }
}
