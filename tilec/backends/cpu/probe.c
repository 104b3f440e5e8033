/* What a CPU can do: multiply-adds on registers alone, and copies of memory. Each function is what one thread
 * runs. Arithmetic: LANES independent sums, more than the latency of an instruction times what starts in a cycle. */
#include <stdint.h>
#include <string.h>

#define LANES 12
#define EXPORT __attribute__((visibility("default")))
#pragma STDC FP_CONTRACT ON

/* sums[i] = sums[i] * x + y: two operations an element */
#define FMA(NAME, BYTES, TARGET)                                                          \
  typedef float NAME##_vector __attribute__((vector_size(BYTES)));                        \
  EXPORT TARGET double NAME(int64_t trips) {                                              \
    NAME##_vector sums[LANES], x = {0}, y = {0};                                          \
    x += 0.999f, y += 1e-3f;                                                              \
    for (int i = 0; i < LANES; i++) sums[i] = x * (float)i;                               \
    for (int64_t trip = 0; trip < trips; trip++) {                                        \
      _Pragma("GCC unroll 12") for (int i = 0; i < LANES; i++) sums[i] = sums[i] * x + y; \
    }                                                                                     \
    for (int i = 1; i < LANES; i++) sums[0] += sums[i];                                   \
    return (double)sums[0][0];                                                         \
  }

#if defined(__x86_64__)
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
FMA(fma_avx2, 32, __attribute__((target("avx2,fma"))))
FMA(fma_avx512, 64, __attribute__((target("avx512f"))))
FMA(fma_sse2, 16, )

__attribute__((target("avx512f,avx512vl,avx512bf16"))) EXPORT double dot_bfloat16(int64_t trips) {
  __m512 sums[LANES];
  __m512bh x = (__m512bh)_mm512_set1_epi16(0x3c00), y = (__m512bh)_mm512_set1_epi16(0x3f7f);
  for (int i = 0; i < LANES; i++) sums[i] = _mm512_set1_ps((float)i);
  for (int64_t trip = 0; trip < trips; trip++) {
    _Pragma("GCC unroll 12") for (int i = 0; i < LANES; i++) sums[i] = _mm512_dpbf16_ps(sums[i], x, y);
  }
  for (int i = 1; i < LANES; i++) sums[0] += sums[i];
  return (double)sums[0][0];
}

__attribute__((target("avx512f,avx512vnni"))) EXPORT double dot_int8(int64_t trips) {
  __m512i sums[LANES], x = _mm512_set1_epi8(3), y = _mm512_set1_epi8(-5);
  for (int i = 0; i < LANES; i++) sums[i] = _mm512_set1_epi32(i);
  for (int64_t trip = 0; trip < trips; trip++) {
    _Pragma("GCC unroll 12") for (int i = 0; i < LANES; i++) sums[i] = _mm512_dpbusd_epi32(sums[i], x, y);
  }
  for (int i = 1; i < LANES; i++) sums[0] = _mm512_add_epi32(sums[0], sums[i]);
  return (double)_mm512_reduce_add_epi32(sums[0]);
}
/* LANES products of full tiles into four tiles of sums in turn. The system grants
 * tiles on request; -1 where it does not. */
#define TILES(NAME, PRODUCT)                                                                \
  __attribute__((target("amx-tile,amx-bf16,amx-int8"))) EXPORT double NAME(int64_t trips) { \
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };                                   \
    if (syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA)) return -1;                  \
    struct {                                                                                \
      uint8_t palette, reserved[15];                                                        \
      uint16_t bytes[16];                                                                   \
      uint8_t rows[16];                                                                     \
    } shapes = {.palette = 1};                                                              \
    for (int i = 0; i < 8; i++) shapes.bytes[i] = 64, shapes.rows[i] = 16;                  \
    _tile_loadconfig(&shapes);                                                              \
    for (int64_t trip = 0; trip < trips; trip++) {                                          \
      PRODUCT(0, 4, 6), PRODUCT(1, 4, 7), PRODUCT(2, 5, 6), PRODUCT(3, 5, 7);               \
      PRODUCT(0, 4, 6), PRODUCT(1, 4, 7), PRODUCT(2, 5, 6), PRODUCT(3, 5, 7);               \
      PRODUCT(0, 4, 6), PRODUCT(1, 4, 7), PRODUCT(2, 5, 6), PRODUCT(3, 5, 7);               \
    }                                                                                       \
    _tile_release();                                                                        \
    return 0;                                                                               \
  }
TILES(tiles_bfloat16, _tile_dpbf16ps)
TILES(tiles_int8, _tile_dpbssd)
#else
FMA(fma_neon, 16, )
#endif

EXPORT void copy(char* target, const char* source, int64_t bytes, int64_t trips) {
  for (int64_t trip = 0; trip < trips; trip++) memcpy(target, source, (size_t)bytes);
}
