// Conversion between the types of a checkpoint and those that kernels read, on the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "kernels.hpp"

namespace llama {

// Bytes of a block of 32 weights in GGUF's Q4_0: a float16 step, then two weights a byte; weights that kernels take together.
constexpr std::int64_t kQ4Block = 32, kQ4Bytes = 18, kQ4Run = 128;

std::uint16_t to_bfloat16(float value);  // to nearest, ties to even
float from_bfloat16(std::uint16_t bits);
std::uint16_t to_float16(float value);
float from_float16(std::uint16_t bits);

// What safetensors files call a type of activations.
const char* stored_name(Type type);

// `count` numbers of a safetensors type ("F32", "BF16", "F16") as float32.
void to_float32(const std::string& dtype, const char* from, std::size_t count, float* to);

// `count` numbers as `type`, one of activations, to nearest.
void store(const float* from, std::size_t count, Type type, void* to);

// One row of `count` numbers as float8_e4m3fn, whose largest one is the largest that this has. Returns their scale.
float round_to_float8(const float* from, std::size_t count, std::uint8_t* to);

// One row of `count` numbers, a multiple of kQ4Block, as blocks of Q4_0, rounded as GGUF's reference rounds.
void quantise_q4_0(const float* from, std::size_t count, std::uint8_t* to);

// The same weights, a multiple of kQ4Run, in the order of `place` in examples/kernels/quantised_packed.py, two a byte, and
// their steps rounded to bfloat16, `pitch` of them from one to the next.
void pack_q4_0(const float* from, std::size_t count, std::uint8_t* to, std::uint16_t* steps, std::size_t pitch);

}  // namespace llama
