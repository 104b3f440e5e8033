#include "weights.hpp"

#include <initializer_list>
#include <stdexcept>

#include "numbers.hpp"

namespace llama {
namespace {

// Some rows of a weight, by name and number.
struct Part {
  std::string name;
  std::int64_t rows;
};

class Loader {
 public:
  Loader(const Checkpoint& files, Precision precision, Device& device)
      : files_(files), precision_(precision), device_(device) {}

  // Tensors of `count` numbers each, behind one another.
  const void* vector(std::initializer_list<Part> parts) {
    std::vector<float> joined;
    for (const Part& part : parts) append(joined, files_.get(part.name, {part.rows}));
    return uploaded(joined);
  }

  const void* zeros(std::int64_t count) { return uploaded(std::vector<float>(static_cast<std::size_t>(count))); }

  // Rows of `columns` numbers in the type of activations.
  const void* table(const std::string& name, std::int64_t rows, std::int64_t columns) {
    return stacked({{name, rows}}, columns, false).data;
  }

  // The weights of one product, behind one another.
  Matrix matrix(std::initializer_list<Part> parts, std::int64_t inputs) {
    if (precision_.q4 && inputs % kQ4Block != 0)
      throw std::runtime_error("q4_0 takes rows of whole blocks of 32 weights; " + parts.begin()->name + " has " +
                               std::to_string(inputs));
    return stacked(parts, inputs, precision_.q4);
  }

 private:
  static void append(std::vector<float>& to, const StoredTensor& tensor) {
    const std::size_t count = static_cast<std::size_t>(tensor.shape.front()), before = to.size();
    to.resize(before + count);
    to_float32(tensor.dtype, tensor.bytes.data(), count, to.data() + before);
  }

  const void* uploaded(const std::vector<float>& numbers) {
    std::vector<char> bytes(numbers.size() * static_cast<std::size_t>(bytes_of(precision_.type)));
    store(numbers.data(), numbers.size(), precision_.type, bytes.data());
    void* data = device_.allocate(bytes.size());
    device_.upload(data, bytes.data(), bytes.size());
    return data;
  }

  Matrix stacked(std::initializer_list<Part> parts, std::int64_t columns, bool q4) {
    const std::int64_t row_bytes = q4 ? columns / kQ4Block * kQ4Bytes : columns * bytes_of(precision_.type);
    Matrix made{nullptr, 0, columns};
    for (const Part& part : parts) made.features += part.rows;
    char* to = static_cast<char*>(device_.allocate(static_cast<std::size_t>(made.features * row_bytes)));
    made.data = to;
    for (const Part& part : parts) {
      upload_rows(files_.get(part.name, {part.rows, columns}), q4, row_bytes, to);
      to += part.rows * row_bytes;
    }
    return made;
  }

  // Row by row: a whole matrix is never on the host twice.
  void upload_rows(const StoredTensor& tensor, bool q4, std::int64_t row_bytes, char* to) {
    const auto columns = static_cast<std::size_t>(tensor.shape[1]);
    const std::size_t stored = tensor.bytes.size() / static_cast<std::size_t>(tensor.shape[0]);
    std::vector<float> numbers(columns);
    std::vector<std::uint8_t> row(static_cast<std::size_t>(row_bytes));
    for (std::size_t i = 0; i < static_cast<std::size_t>(tensor.shape[0]); ++i, to += row_bytes) {
      to_float32(tensor.dtype, tensor.bytes.data() + i * stored, columns, numbers.data());
      if (q4)
        quantise_q4_0(numbers.data(), columns, row.data());
      else
        store(numbers.data(), columns, precision_.type, row.data());
      device_.upload(to, row.data(), row.size());
    }
  }

  const Checkpoint& files_;
  Precision precision_;
  Device& device_;
};

Layer load_layer(Loader& load, const Config& config, const std::string& prefix) {
  const std::int64_t q = config.heads * config.head_dim, kv = config.key_heads * config.head_dim;
  const std::string self = prefix + "self_attn.", mlp = prefix + "mlp.";
  Layer layer;
  layer.input_gain = load.vector({{prefix + "input_layernorm.weight", config.hidden}});
  layer.inner_gain = load.vector({{prefix + "post_attention_layernorm.weight", config.hidden}});
  layer.qkv = load.matrix({{self + "q_proj.weight", q}, {self + "k_proj.weight", kv}, {self + "v_proj.weight", kv}},
                          config.hidden);
  layer.qkv_bias =
      config.qkv_bias
          ? load.vector({{self + "q_proj.bias", q}, {self + "k_proj.bias", kv}, {self + "v_proj.bias", kv}})
          : load.zeros(q + 2 * kv);
  layer.q_gain = config.qk_norm ? load.vector({{self + "q_norm.weight", config.head_dim}}) : load.zeros(config.head_dim);
  layer.k_gain = config.qk_norm ? load.vector({{self + "k_norm.weight", config.head_dim}}) : layer.q_gain;
  layer.out = load.matrix({{self + "o_proj.weight", config.hidden}}, q);
  layer.gate_up =
      load.matrix({{mlp + "gate_proj.weight", config.inner}, {mlp + "up_proj.weight", config.inner}}, config.hidden);
  layer.down = load.matrix({{mlp + "down_proj.weight", config.hidden}}, config.inner);
  return layer;
}

}  // namespace

Precision Precision::named(const std::string& name) {
  if (name == "float32") return {Type::kFloat32, false};
  if (name == "bfloat16") return {Type::kBfloat16, false};
  if (name == "q4_0") return {Type::kBfloat16, true};
  throw std::invalid_argument("--precision takes float32, bfloat16 or q4_0, not " + name);
}

Weights::Weights(const Checkpoint& files, const Config& config, Precision precision, Device& device) {
  Loader load(files, precision, device);
  const std::string words = "model.embed_tokens.weight";
  embeddings = load.table(words, config.vocabulary, config.hidden);
  last_gain = load.vector({{"model.norm.weight", config.hidden}});
  for (std::int64_t i = 0; i < config.layers; ++i)
    layers.push_back(load_layer(load, config, "model.layers." + std::to_string(i) + "."));
  if (config.tied && !precision.q4)
    head = {embeddings, config.vocabulary, config.hidden};
  else
    head = load.matrix({{config.tied ? words : "lm_head.weight", config.vocabulary}}, config.hidden);
}

}  // namespace llama
