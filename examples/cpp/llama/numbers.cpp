#include "numbers.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

namespace llama {
namespace {

std::uint32_t bits_of(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

float float_of(std::uint32_t bits) {
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

std::uint16_t half_word(const char* from, std::size_t i) {
  std::uint16_t word = 0;
  std::memcpy(&word, from + 2 * i, sizeof word);
  return word;
}

// The bits of 0 or a positive number, to nearest, ties to even, where a type has `digits` of them and its least number is
// 2^least.
int rounded(float size, int digits, int least) {
  if (size == 0) return 0;
  int exponent = 0;
  std::frexp(size, &exponent);
  const int last = std::max(exponent - digits, least);
  return (last - least) * (1 << (digits - 1)) + static_cast<int>(std::nearbyint(std::ldexp(static_cast<double>(size), -last)));
}

}  // namespace

std::uint16_t to_bfloat16(float value) {
  const std::uint32_t bits = bits_of(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>(bits >> 16 | 64);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float from_bfloat16(std::uint16_t bits) { return float_of(std::uint32_t{bits} << 16); }

std::uint16_t to_float16(float value) {
  const int sign = std::signbit(value) ? 0x8000 : 0;
  if (std::isnan(value)) return static_cast<std::uint16_t>(sign | 0x7e00);
  return static_cast<std::uint16_t>(sign | std::min(rounded(std::min(std::fabs(value), 131072.0f), 11, -24), 0x7c00));
}

float from_float16(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  float size = std::ldexp(static_cast<float>(fraction + (exponent ? 1024 : 0)), (exponent ? exponent : 1) - 25);
  if (exponent == 31) size = fraction ? NAN : INFINITY;
  return bits & 0x8000 ? -size : size;
}

const char* stored_name(Type type) { return type == Type::kFloat32 ? "F32" : type == Type::kFloat16 ? "F16" : "BF16"; }

void to_float32(const std::string& dtype, const char* from, std::size_t count, float* to) {
  if (dtype == "F32") {
    std::memcpy(to, from, count * sizeof(float));
  } else if (dtype == "BF16") {
    for (std::size_t i = 0; i < count; ++i) to[i] = from_bfloat16(half_word(from, i));
  } else {
    for (std::size_t i = 0; i < count; ++i) to[i] = from_float16(half_word(from, i));
  }
}

void store(const float* from, std::size_t count, Type type, void* to) {
  if (type == Type::kFloat32) {
    std::memcpy(to, from, count * sizeof(float));
  } else {
    std::transform(from, from + count, static_cast<std::uint16_t*>(to), type == Type::kFloat16 ? to_float16 : to_bfloat16);
  }
}

float round_to_float8(const float* from, std::size_t count, std::uint8_t* to) {
  constexpr float kMost = 448, kLeast = 1e-30f;  // as examples/kernels/fp8.py has them
  float top = kLeast;
  for (std::size_t i = 0; i < count; ++i) top = std::max(top, std::fabs(from[i]));
  const float factor = kMost / top;
  for (std::size_t i = 0; i < count; ++i)
    to[i] = static_cast<std::uint8_t>((std::signbit(from[i]) ? 128 : 0) | rounded(std::min(std::fabs(from[i] * factor), kMost), 4, -9));
  return top / kMost;
}

void quantise_q4_0(const float* from, std::size_t count, std::uint8_t* to) {
  for (std::size_t at = 0; at < count; at += kQ4Block, from += kQ4Block, to += kQ4Bytes) {
    const float* most = std::max_element(from, from + kQ4Block, [](float a, float b) { return std::fabs(a) < std::fabs(b); });
    const float step = *most / -8, inverse = step != 0 ? 1 / step : 0;
    const auto number = [&](std::size_t i) { return static_cast<unsigned>(std::min(15.0f, from[i] * inverse + 8.5f)); };
    const std::uint16_t half = to_float16(step);
    std::memcpy(to, &half, sizeof half);
    for (std::size_t i = 0; i < kQ4Block / 2; ++i)
      to[2 + i] = static_cast<std::uint8_t>(number(i) | number(i + kQ4Block / 2) << 4);
  }
}

void pack_q4_0(const float* from, std::size_t count, std::uint8_t* to, std::uint16_t* steps, std::size_t pitch) {
  constexpr std::size_t kHalf = kQ4Block / 2, kBlocks = kQ4Run / kQ4Block, kBytes = kQ4Run / 2;
  std::array<std::uint8_t, kQ4Bytes> block{};
  std::fill_n(to, count / 2, std::uint8_t{0});
  for (std::size_t b = 0; b < count / kQ4Block; ++b, from += kQ4Block, steps += pitch) {
    quantise_q4_0(from, kQ4Block, block.data());
    *steps = to_bfloat16(from_float16(half_word(reinterpret_cast<const char*>(block.data()), 0)));
    std::uint8_t* run = to + b / kBlocks * kBytes + b % kBlocks * 4;  // every lane of four has 16 bytes of it
    for (std::size_t k = 0; k < kQ4Block; ++k) {
      const unsigned number = block[2 + k % kHalf] >> (k / kHalf * 4) & 15u;
      run[k / 2 % 4 * 16 + k / 16 + k % 2 * 2] |= static_cast<std::uint8_t>(number << (k / 8 % 2 * 4));
    }
  }
}

}  // namespace llama
