// minilm WEIGHTS [--threads N] [--precision float32|bfloat16] [--device cpu|cuda|cuda:N]: batches of token ids on
// stdin, unit sentence vectors on stdout. On a GPU the precision is float16.
//
// A batch is int32 sentences, int32 pitch, int32 lengths[sentences], int32 ids[sentences][pitch] (what lies
// past a sentence's length is padding and is not looked at). The answer is float64 seconds spent on the batch,
// then float32 vectors[sentences][384]. Native byte order. The end of stdin ends the program.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "cpu_backend.hpp"
#include "cuda_backend.hpp"
#include "encoder.hpp"

namespace {

constexpr int kOnCpu = -1;

struct Options {
  std::string weights, precision;
  std::uint32_t threads = 1;
  int device = kOnCpu;
};

minilm::Precision parse_precision(const std::string& text) {
  if (text.empty() || text == "float32") return minilm::Precision::kFloat32;
  if (text == "bfloat16") return minilm::Precision::kBfloat16;
  throw std::invalid_argument("--precision takes float32 or bfloat16 on the CPU");
}

int parse_device(const std::string& text) {
  if (text == "cpu") return kOnCpu;
  const std::string number = text == "cuda" ? "0" : text.rfind("cuda:", 0) == 0 ? text.substr(5) : "";
  if (number.empty() || number.size() > 3 || number.find_first_not_of("0123456789") != std::string::npos)
    throw std::invalid_argument("--device takes cpu, cuda or cuda:<number>");
  return std::stoi(number);
}

std::unique_ptr<minilm::Backend> make_backend(const Options& options) {
  if (options.device == kOnCpu)
    return std::make_unique<minilm::CpuBackend>(options.threads, parse_precision(options.precision));
  if (!options.precision.empty() && options.precision != "float16")
    throw std::invalid_argument("--precision takes float16 alone on a GPU");
  return std::make_unique<minilm::CudaBackend>(options.device);
}

Options parse_options(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--threads" && i + 1 < argc)
      options.threads = static_cast<std::uint32_t>(std::strtoul(argv[++i], nullptr, 10));
    else if (arg == "--precision" && i + 1 < argc)
      options.precision = argv[++i];
    else if (arg == "--device" && i + 1 < argc)
      options.device = parse_device(argv[++i]);
    else if (options.weights.empty() && arg.rfind("--", 0) != 0)
      options.weights = arg;
    else
      throw std::invalid_argument("unknown argument " + arg);
  }
  if (options.weights.empty())
    throw std::invalid_argument(
        "usage: minilm WEIGHTS [--threads N] [--precision float32|bfloat16] [--device cpu|cuda|cuda:N]");
  if (options.threads < 1 || options.threads > 1024) throw std::invalid_argument("--threads takes 1 to 1024");
  return options;
}

// False at a clean end of the input, before the first byte.
bool read_exactly(void* out, std::size_t bytes) {
  const std::size_t got = std::fread(out, 1, bytes, stdin);
  if (got != bytes && got != 0) throw std::runtime_error("the input ends inside a batch");
  return got == bytes;
}

// One padded batch as it stands on stdin.
struct PaddedBatch {
  std::int32_t sentences = 0, pitch = 0;
  std::vector<std::int32_t> lengths, ids;
};

bool read_batch(PaddedBatch& batch) {
  std::int32_t head[2];
  if (!read_exactly(head, sizeof head)) return false;
  batch.sentences = head[0];
  batch.pitch = head[1];
  if (batch.sentences < 1 || batch.pitch < 1 || batch.pitch > minilm::kPositions || batch.sentences > 1 << 20)
    throw std::runtime_error("a batch holds 1 sentence or more of 1 to 512 tokens");
  batch.lengths.resize(static_cast<std::size_t>(batch.sentences));
  batch.ids.resize(batch.lengths.size() * static_cast<std::size_t>(batch.pitch));
  if (!read_exactly(batch.lengths.data(), batch.lengths.size() * sizeof(std::int32_t)) ||
      !read_exactly(batch.ids.data(), batch.ids.size() * sizeof(std::int32_t)))
    throw std::runtime_error("the input ends inside a batch");
  for (const std::int32_t length : batch.lengths)
    if (length < 1 || length > batch.pitch) throw std::runtime_error("a length lies outside its batch");
  return true;
}

// Drops the padding: no kernel works on it.
void gather(const PaddedBatch& padded, minilm::Batch& batch) {
  batch.clear();
  const std::int32_t* row = padded.ids.data();
  for (const std::int32_t length : padded.lengths) {
    batch.add(row, length);
    row += padded.pitch;
  }
}

void write_answer(double seconds, const float* vectors, std::size_t sentences) {
  std::fwrite(&seconds, sizeof seconds, 1, stdout);
  std::fwrite(vectors, sizeof(float) * minilm::kHidden, sentences, stdout);
  if (std::fflush(stdout) != 0) throw std::runtime_error("cannot write the answer");
}

void serve(const Options& options) {
  auto backend = make_backend(options);
  const checkpoint::Checkpoint weights(options.weights);
  minilm::Encoder encoder(weights, std::move(backend));
  PaddedBatch padded;
  minilm::Batch batch;
  while (read_batch(padded)) {
    const auto begin = std::chrono::steady_clock::now();
    gather(padded, batch);
    const float* vectors = encoder.encode(batch);
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
    write_answer(spent.count(), vectors, padded.lengths.size());
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    serve(parse_options(argc, argv));
    return 0;
  } catch (const std::invalid_argument& error) {
    std::fprintf(stderr, "minilm: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "minilm: %s\n", error.what());
    return 1;
  }
}
