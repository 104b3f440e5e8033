// The weights of a model in a device's memory, in the types that its products read.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/safetensors.hpp"
#include "config.hpp"
#include "group.hpp"
#include "kernels.hpp"

namespace llama {

// How the weights of products are stored: in the type of activations; in 4 bits as blocks of Q4_0 of GGUF, or as the same
// numbers packed for tensor cores, with their steps behind all rows; as float8_e4m3fn, with a scale for each row behind them.
enum class Form { kPlain, kQ4Blocks, kQ4Packed, kFloat8 };

// How a model computes: the type of activations, the form of weights and the type of cached keys and values.
struct Precision {
  // One of "float32", "bfloat16", "float16", "q4_0" and "fp8" (activations of these in bfloat16); keys and values are the
  // "same" as activations or, of 16 bits, "fp8". Throws std::invalid_argument.
  static Precision named(const std::string& name, const std::string& cache);
  // The same with weights in the form that the library multiplies by on its device. Throws std::runtime_error.
  Precision on(const Kernels& kernels) const;

  Type type = Type::kFloat32;
  Form form = Form::kPlain;
  Type cache = type;
};

// A weight (features, inputs) of a product.
struct Matrix {
  const void* data = nullptr;
  std::int64_t features = 0, inputs = 0;
  const void* scales = nullptr;  // where they are apart
};

// Weights of a gated MLP, or of as many as there are experts, one behind the other.
struct Mlp {
  Matrix gate_up, down;
};

struct Layer {
  const void *input_gain = nullptr, *inner_gain = nullptr;            // of the norms before attention and MLP
  const void *qkv_bias = nullptr, *q_gain = nullptr, *k_gain = nullptr;  // zeros and anything where a model has none
  Matrix qkv, out;
  Mlp mlp;                     // of every token; where there are experts only if tokens share one
  Matrix router, shared_gate;  // in the type of activations; the router is there where the layer has experts
  Mlp experts;
};

struct Weights {
  // Uploads the checkpoint's tensors, or the share of them that `config` tells the sizes of, converted. Throws std::runtime_error for tensors that are absent or misshapen.
  Weights(const checkpoint::Checkpoint& files, const Config& config, Precision precision, Device& device, Share share);

  const void* embeddings = nullptr;
  const void* last_gain = nullptr;
  Matrix head;
  std::vector<Layer> layers;
};

}  // namespace llama
