#include "weights.hpp"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <stdexcept>
#include <thread>

#include "numbers.hpp"

namespace llama {
namespace {

// How checkpoints call gate, up and down of an MLP.
constexpr std::array<const char*, 3> kMlp{"gate_proj", "up_proj", "down_proj"}, kMixtral{"w1", "w3", "w2"};

// Some rows of a weight, by name and number.
struct Part {
  std::string name;
  std::int64_t rows;
};

// 8-bit floats that kernels take together.
constexpr std::int64_t kFloat8Run = 16;

// Bytes of a row of weights, and of its scales.
struct Extent {
  std::int64_t bytes, scales;
};

Extent extent(Form form, Type type, std::int64_t columns) {
  switch (form) {
    case Form::kPlain: return {columns * bytes_of(type), 0};
    case Form::kQ4Blocks: return {columns / kQ4Block * kQ4Bytes, 0};
    case Form::kQ4Packed: return {columns / 2, columns / kQ4Block * 2};
    case Form::kFloat8: return {columns, 4};
  }
  return {};
}

// Bytes of rows that are converted together.
constexpr std::int64_t kSlab = 16 << 20;

// `work` on parts of 0 to `count`, a thread for each, as many as there are processors.
template <typename Work>
void in_parallel(std::int64_t count, const Work& work) {
  const std::int64_t threads = std::min<std::int64_t>(count, std::max(std::thread::hardware_concurrency(), 1u));
  std::vector<std::thread> others;
  for (std::int64_t i = 1; i < threads; ++i) others.emplace_back(work, count * i / threads, count * (i + 1) / threads);
  work(0, count / threads);
  for (std::thread& other : others) other.join();
}

// Of what shares have parts; everything else is whole in all of them.
enum class Split { kNone, kRows, kColumns };

class Loader {
 public:
  Loader(const checkpoint::Checkpoint& files, Precision precision, Device& device, Share share)
      : files_(files), precision_(precision), device_(device), share_(share) {}

  bool has(const std::string& name) const { return files_.has(name); }

  // Tensors of `count` numbers each, behind one another.
  const void* vector(std::initializer_list<Part> parts, Split split = Split::kNone) {
    std::vector<float> joined;
    for (const Part& part : parts) {
      const Stored found = find(part.name, {part.rows}, split);
      joined.resize(joined.size() + static_cast<std::size_t>(part.rows));
      to_float32(found.dtype, found.data, static_cast<std::size_t>(part.rows), &*joined.end() - part.rows);
    }
    return uploaded(joined);
  }

  const void* zeros(std::int64_t count) { return uploaded(std::vector<float>(static_cast<std::size_t>(count))); }

  // Rows of `columns` numbers in the type of activations.
  const void* table(const std::string& name, std::int64_t rows, std::int64_t columns) {
    return stacked({{name, rows}}, columns, Form::kPlain, Split::kNone).data;
  }

  // The weights of one product, behind one another.
  Matrix matrix(const std::vector<Part>& parts, std::int64_t inputs, Split split) {
    const std::int64_t run = precision_.form == Form::kPlain ? 1 : precision_.form == Form::kFloat8 ? kFloat8Run : kQ4Run;
    if (inputs % run != 0)
      throw std::runtime_error("--precision: products take rows of a multiple of " + std::to_string(run) + " weights; " +
                               parts.front().name + " has " + std::to_string(inputs));
    return stacked(parts, inputs, precision_.form, split);
  }

 private:
  // Where this share of a tensor begins, and how many bytes a row of the file has.
  struct Stored {
    std::string dtype;
    const char* data;
    std::size_t pitch;
  };

  Stored find(const std::string& name, std::vector<std::int64_t> shape, Split split) const {
    const std::int64_t rows = shape.front();
    if (split != Split::kNone) (split == Split::kRows ? shape.front() : shape.back()) *= share_.ranks;
    const checkpoint::StoredTensor& tensor = files_.get(name, shape);
    const std::size_t pitch = tensor.bytes.size() / static_cast<std::size_t>(shape.front());
    const auto rank = static_cast<std::size_t>(share_.rank), ranks = static_cast<std::size_t>(share_.ranks);
    const std::size_t skipped = split == Split::kNone ? 0 : split == Split::kRows ? rank * rows * pitch : rank * (pitch / ranks);
    return {tensor.dtype, tensor.bytes.data() + skipped, pitch};
  }

  const void* uploaded(const std::vector<float>& numbers) {
    std::vector<char> bytes(numbers.size() * static_cast<std::size_t>(bytes_of(precision_.type)));
    store(numbers.data(), numbers.size(), precision_.type, bytes.data());
    void* data = device_.allocate(bytes.size());
    device_.upload(data, bytes.data(), bytes.size());
    return data;
  }

  Matrix stacked(const std::vector<Part>& parts, std::int64_t columns, Form form, Split split) {
    Matrix made{nullptr, 0, columns};
    for (const Part& part : parts) made.features += part.rows;
    const Extent row = extent(form, precision_.type, columns);
    const auto bytes = static_cast<std::size_t>(made.features * row.bytes);
    std::vector<char> scales(static_cast<std::size_t>(made.features * row.scales));
    char* to = static_cast<char*>(device_.allocate(bytes + scales.size()));
    made.data = to;
    made.scales = to + bytes;
    std::int64_t first = 0;
    for (const Part& part : parts) {
      const auto convert_row = [&](const std::vector<float>& numbers, std::int64_t i, std::uint8_t* stored) {
        convert(form, numbers, stored, scales.data(), first + i, made.features);
      };
      upload_rows(find(part.name, {part.rows, columns}, split), part.rows, columns, row.bytes, to + first * row.bytes,
                  convert_row, form == Form::kPlain);
      first += part.rows;
    }
    if (!scales.empty()) device_.upload(to + bytes, scales.data(), scales.size());
    return made;
  }

  // Row `i` of `rows`, with its scales among all.
  void convert(Form form, const std::vector<float>& numbers, std::uint8_t* to, char* scales, std::int64_t i, std::int64_t rows) const {
    switch (form) {
      case Form::kPlain: return store(numbers.data(), numbers.size(), precision_.type, to);
      case Form::kQ4Blocks: return quantise_q4_0(numbers.data(), numbers.size(), to);
      case Form::kQ4Packed:
        return pack_q4_0(numbers.data(), numbers.size(), to, reinterpret_cast<std::uint16_t*>(scales) + i, static_cast<std::size_t>(rows));
      case Form::kFloat8: reinterpret_cast<float*>(scales)[i] = round_to_float8(numbers.data(), numbers.size(), to);
    }
  }

  // As they are stored, or as `convert` makes them of numbers, a slab of rows at a time: a whole matrix is never on the host
  // twice.
  template <typename Convert>
  void upload_rows(const Stored& from, std::int64_t rows, std::int64_t width, std::int64_t row_bytes, char* to,
                   const Convert& convert, bool is_plain) {
    if (is_plain && from.pitch == static_cast<std::size_t>(row_bytes) && from.dtype == stored_name(precision_.type))
      return device_.upload(to, from.data, static_cast<std::size_t>(rows * row_bytes));
    const std::int64_t slab = std::max<std::int64_t>(kSlab / row_bytes, 1);
    std::vector<std::uint8_t> made(static_cast<std::size_t>(std::min(slab, rows) * row_bytes));
    for (std::int64_t begin = 0; begin < rows; begin += slab) {
      const std::int64_t count = std::min(slab, rows - begin);
      in_parallel(count, [&](std::int64_t first, std::int64_t end) {
        std::vector<float> numbers(static_cast<std::size_t>(width));
        for (std::int64_t row = first; row < end; ++row) {
          const char* data = from.data + static_cast<std::size_t>(begin + row) * from.pitch;
          to_float32(from.dtype, data, numbers.size(), numbers.data());
          convert(numbers, begin + row, made.data() + row * row_bytes);
        }
      });
      device_.upload(to + begin * row_bytes, made.data(), static_cast<std::size_t>(count * row_bytes));
    }
  }

  const checkpoint::Checkpoint& files_;
  Precision precision_;
  Device& device_;
  Share share_;
};

// MLPs of `inner` channels; `names` are those of gate, up and down.
Mlp load_mlps(Loader& load, const std::vector<std::string>& prefixes, const std::array<const char*, 3>& names,
              std::int64_t hidden, std::int64_t inner) {
  std::vector<Part> gate_up, down;
  for (const std::string& prefix : prefixes) {
    gate_up.push_back({prefix + names[0] + ".weight", inner});
    gate_up.push_back({prefix + names[1] + ".weight", inner});
    down.push_back({prefix + names[2] + ".weight", hidden});
  }
  Mlp made{load.matrix(gate_up, hidden, Split::kRows), load.matrix(down, inner, Split::kColumns)};
  made.gate_up.features = 2 * inner;
  made.down.features = hidden;
  return made;
}

// Checkpoints of Mixtral have names of their own.
void load_experts(Loader& load, const Config& config, const std::string& layer_prefix, Layer& layer) {
  const bool is_mixtral = load.has(layer_prefix + "block_sparse_moe.gate.weight");
  const std::string prefix = layer_prefix + (is_mixtral ? "block_sparse_moe." : "mlp.");
  const std::array<const char*, 3> names = is_mixtral ? kMixtral : kMlp;
  std::vector<std::string> all;
  for (std::int64_t i = 0; i < config.experts.count; ++i) all.push_back(prefix + "experts." + std::to_string(i) + ".");
  const auto narrow = [&](const char* name, std::int64_t features) {
    return Matrix{load.table(prefix + name, features, config.hidden), features, config.hidden};
  };
  layer.router = narrow("gate.weight", config.experts.count);
  layer.experts = load_mlps(load, all, names, config.hidden, config.experts.inner);
  if (config.experts.shared == 0) return;
  layer.mlp = load_mlps(load, {prefix + "shared_expert."}, names, config.hidden, config.experts.shared);
  layer.shared_gate = narrow("shared_expert_gate.weight", 1);
}

Layer load_layer(Loader& load, const Config& config, std::int64_t number) {
  const std::string prefix = "model.layers." + std::to_string(number) + ".", self = prefix + "self_attn.";
  const std::int64_t q = config.heads * config.head_dim, kv = config.key_heads * config.head_dim;
  Layer layer;
  layer.input_gain = load.vector({{prefix + "input_layernorm.weight", config.hidden}});
  layer.inner_gain = load.vector({{prefix + "post_attention_layernorm.weight", config.hidden}});
  layer.qkv = load.matrix({{self + "q_proj.weight", q}, {self + "k_proj.weight", kv}, {self + "v_proj.weight", kv}},
                          config.hidden, Split::kRows);
  layer.qkv_bias =
      config.qkv_bias
          ? load.vector({{self + "q_proj.bias", q}, {self + "k_proj.bias", kv}, {self + "v_proj.bias", kv}}, Split::kRows)
          : load.zeros(q + 2 * kv);
  layer.q_gain = config.qk_norm ? load.vector({{self + "q_norm.weight", config.head_dim}}) : load.zeros(config.head_dim);
  layer.k_gain = config.qk_norm ? load.vector({{self + "k_norm.weight", config.head_dim}}) : layer.q_gain;
  layer.out = load.matrix({{self + "o_proj.weight", config.hidden}}, q, Split::kColumns);
  if (config.experts.are_in(number))
    load_experts(load, config, prefix, layer);
  else
    layer.mlp = load_mlps(load, {prefix + "mlp."}, kMlp, config.hidden, config.inner);
  return layer;
}

}  // namespace

Precision Precision::named(const std::string& name, const std::string& cache) {
  Precision made{Type::kBfloat16, name == "q4_0" ? Form::kQ4Blocks : name == "fp8" ? Form::kFloat8 : Form::kPlain};
  for (const Type type : {Type::kFloat32, Type::kFloat16})
    if (name == name_of(type)) made.type = made.cache = type;
  if (made.form == Form::kPlain && name != name_of(made.type))
    throw std::invalid_argument("--precision takes float32, bfloat16, float16, q4_0 or fp8, not " + name);
  if (cache == "fp8" && made.type != Type::kFloat32) made.cache = Type::kFloat8;
  else if (cache != "same") throw std::invalid_argument("--cache-type takes same or, but for float32, fp8, not " + cache);
  return made;
}

Precision Precision::on(const Kernels& kernels) const {
  const Tensor eight(nullptr, Type::kFloat8, {8, kFloat8Run}), scales(nullptr, Type::kFloat32, {8});
  if (form == Form::kFloat8 && !kernels.serves("linear_fp8", {eight, eight, scales, scales, Tensor(nullptr, type, {8, 8})}))
    throw std::runtime_error("--precision fp8: the library has no products of 8-bit floats for this device");
  const Tensor row(nullptr, type, {1, kQ4Run}), packed(nullptr, Type::kByte, {8, kQ4Run / 2});
  const Tensor steps(nullptr, type, {kQ4Run / kQ4Block, 8}), result(nullptr, type, {1, 8});
  const bool is_packed = form == Form::kQ4Blocks && kernels.serves("linear_packed", {row, packed, steps, result});
  return {type, is_packed ? Form::kQ4Packed : form, cache};
}

Weights::Weights(const checkpoint::Checkpoint& files, const Config& config, Precision precision, Device& device, Share share) {
  Loader load(files, precision, device, share);
  const std::string words = "model.embed_tokens.weight";
  embeddings = load.table(words, config.vocabulary, config.hidden);
  last_gain = load.vector({{"model.norm.weight", config.hidden}});
  for (std::int64_t i = 0; i < config.layers; ++i)
    layers.push_back(load_layer(load, config, i));
  if (config.tied && precision.form == Form::kPlain)
    head = {embeddings, config.vocabulary, config.hidden};
  else
    head = load.matrix({{config.tied ? words : "lm_head.weight", config.vocabulary}}, config.hidden, Split::kNone);
}

}  // namespace llama
