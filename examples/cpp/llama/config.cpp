#include "config.hpp"

#include <algorithm>
#include <stdexcept>

#include "checkpoint/json.hpp"
#include "checkpoint/safetensors.hpp"

namespace llama {
namespace {

using checkpoint::Json;

[[noreturn]] void refuse(const std::string& what) { throw std::runtime_error("config.json: " + what); }

std::int64_t positive(const Json& json, const std::string& key) {
  const std::int64_t value = json.at(key).integer();
  if (value < 1 || value > (std::int64_t{1} << 31) - 1) refuse(key + " is " + std::to_string(value));
  return value;
}

std::int64_t positive_or(const Json& json, const std::string& key, std::int64_t otherwise) {
  return json.find(key) == nullptr ? otherwise : positive(json, key);
}

bool flag_or(const Json& json, const std::string& key, bool otherwise) {
  const Json* found = json.find(key);
  return found == nullptr ? otherwise : found->flag();
}

RopeScaling read_scaling(const Json& json) {
  const Json* kind = json.find("rope_type") != nullptr ? json.find("rope_type") : json.find("type");
  RopeScaling scaling;
  if (kind == nullptr || kind->text() == "default") return scaling;
  scaling.factor = json.at("factor").number();
  if (kind->text() == "linear") return scaling.kind = RopeScaling::Kind::kLinear, scaling;
  if (kind->text() != "llama3") refuse("rope scaling \"" + kind->text() + "\" is none of default, linear, llama3");
  scaling.kind = RopeScaling::Kind::kLlama3;
  scaling.low = json.at("low_freq_factor").number();
  scaling.high = json.at("high_freq_factor").number();
  scaling.original = json.at("original_max_position_embeddings").number();
  return scaling;
}

// transformers 5 writes "rope_parameters" with theta inside, older ones "rope_scaling" beside "rope_theta".
void read_rope(const Json& json, Config& config) {
  const Json* rope = json.find("rope_parameters");
  if (rope == nullptr) rope = json.find("rope_scaling");
  if (rope != nullptr) config.rope = read_scaling(*rope);
  const Json* theta = rope == nullptr ? nullptr : rope->find("rope_theta");
  if (theta == nullptr) theta = json.find("rope_theta");
  config.theta = theta == nullptr ? 10000.0 : theta->number();
}

bool is_mistral(const std::string& family) { return family == "mistral" || family == "mixtral"; }

// Qwen2 and Qwen3 have a window in their configs that "use_sliding_window" turns on, from some layer on.
void read_window(const Json& json, const std::string& family, Config& config) {
  const bool is_on = is_mistral(family) || flag_or(json, "use_sliding_window", false);
  if (!is_on || json.find("sliding_window") == nullptr) return;
  if (!is_mistral(family)) refuse("use_sliding_window: windows of some layers alone are not supported");
  config.window = positive(json, "sliding_window");
}

// Mixtral's experts are all of a layer's MLP, and have no sizes of their own.
void read_experts(const Json& json, const std::string& family, Config& config) {
  Experts& experts = config.experts;
  experts.count = positive(json, json.find("num_local_experts") != nullptr ? "num_local_experts" : "num_experts");
  experts.chosen = positive(json, "num_experts_per_tok");
  if (experts.chosen > experts.count) refuse("num_experts_per_tok exceeds the number of experts");
  experts.renormalise = family == "mixtral" || flag_or(json, "norm_topk_prob", false);
  experts.inner = family == "mixtral" ? config.inner : positive(json, "moe_intermediate_size");
  if (family == "mixtral") return;
  if (family == "qwen2_moe") experts.shared = positive(json, "shared_expert_intermediate_size");
  experts.step = positive_or(json, "decoder_sparse_step", 1);
  if (const Json* plain = json.find("mlp_only_layers"))
    for (const Json& layer : plain->items()) experts.plain.push_back(layer.integer());
}

const std::string kFamilies = "llama, mistral, mixtral, qwen2, qwen3, qwen2_moe, qwen3_moe";

}  // namespace

bool Experts::are_in(std::int64_t layer) const {
  return count != 0 && (layer + 1) % step == 0 && std::find(plain.begin(), plain.end(), layer) == plain.end();
}

Config Config::read(const std::string& folder) {
  const std::string path = folder + "/config.json";
  const checkpoint::MappedFile file(path);
  const Json json = Json::parse(file.bytes(), path);
  const std::string family = json.at("model_type").text();
  if ((", " + kFamilies + ", ").find(", " + family + ", ") == std::string::npos)
    refuse("model_type \"" + family + "\" is none of " + kFamilies);
  if (json.find("hidden_act") != nullptr && json.at("hidden_act").text() != "silu") refuse("hidden_act is not silu");
  if (flag_or(json, "mlp_bias", false)) refuse("mlp_bias: biases of the MLP are not supported");
  if (flag_or(json, "attention_bias", false)) refuse("attention_bias: a bias of the output is not supported");
  Config config;
  config.hidden = positive(json, "hidden_size");
  config.inner = positive(json, "intermediate_size");
  config.layers = positive(json, "num_hidden_layers");
  config.vocabulary = positive(json, "vocab_size");
  config.positions = positive(json, "max_position_embeddings");
  config.heads = positive(json, "num_attention_heads");
  config.key_heads = positive_or(json, "num_key_value_heads", config.heads);
  config.head_dim = positive_or(json, "head_dim", config.hidden / config.heads);
  config.eps = json.at("rms_norm_eps").number();
  config.tied = flag_or(json, "tie_word_embeddings", false);
  config.qk_norm = family == "qwen3" || family == "qwen3_moe";
  config.qkv_bias = family == "qwen2" || (family == "qwen2_moe" && flag_or(json, "qkv_bias", true));
  if (config.heads % config.key_heads != 0) refuse("num_key_value_heads does not divide num_attention_heads");
  read_rope(json, config);
  read_window(json, family, config);
  if (family == "mixtral" || family == "qwen2_moe" || family == "qwen3_moe") read_experts(json, family, config);
  return config;
}

Config Config::split(std::int64_t ranks) const {
  Config part = *this;
  const auto divide = [&](const char* what, std::int64_t& count) {
    if (count % ranks != 0) refuse("its " + std::to_string(count) + " " + what + " are no multiple of --ranks");
    count /= ranks;
  };
  divide("heads", part.heads);
  divide("heads of keys", part.key_heads);
  divide("channels of an MLP", part.inner);
  divide("channels of an expert", part.experts.inner);
  divide("channels of the shared expert", part.experts.shared);
  return part;
}

}  // namespace llama
