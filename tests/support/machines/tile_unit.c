/* The matrix unit of x86 in plain C, after Intel's public description (SDM, volume 1, chapter 18, and the pages of
 * its instructions): eight tiles, whose shapes come from the configuration. What the machine would answer with a
 * fault breaks every tile for good: all that is stored from then on has all bits set. */
#include <math.h>
#include <stdint.h>
#include <string.h>

enum { TILES = 8, ROWS = 16, BYTES = 64 };
typedef struct tile {
  uint8_t bytes[ROWS][BYTES];
  uint8_t rows;
  uint16_t width;
} tile;
static tile tiles[TILES];
static _Bool broken;

static void expect(_Bool holds) { broken = broken || !holds; }

void emulated_ldtilecfg(const uint8_t* config) {
  memset(tiles, 0, sizeof(tiles));
  expect(config[0] == 1 && config[1] == 0);
  for (int i = 0; i < TILES; i++) {
    memcpy(&tiles[i].width, config + 16 + 2 * i, 2);
    tiles[i].rows = config[48 + i];
    expect(tiles[i].width <= BYTES && tiles[i].rows <= ROWS && !tiles[i].width == !tiles[i].rows);
  }
  for (int i = 2; i < 16; i++) expect(config[i] == 0);
  for (int i = TILES; i < 16; i++) expect(config[16 + 2 * i] == 0 && config[17 + 2 * i] == 0 && config[48 + i] == 0);
}

void emulated_tilerelease(void) { memset(tiles, 0, sizeof(tiles)); }

void emulated_tilezero(uint8_t to) {
  expect(tiles[to].rows);
  memset(tiles[to].bytes, 0, sizeof(tiles[to].bytes));
}

void emulated_tileloadd64(uint8_t to, const uint8_t* from, int64_t stride) {
  expect(tiles[to].rows);
  memset(tiles[to].bytes, 0, sizeof(tiles[to].bytes));
  for (int row = 0; row < tiles[to].rows; row++) memcpy(tiles[to].bytes[row], from + row * stride, tiles[to].width);
}

void emulated_tileloaddt164(uint8_t to, const uint8_t* from, int64_t stride) { emulated_tileloadd64(to, from, stride); }

void emulated_tilestored64(uint8_t from, uint8_t* to, int64_t stride) {
  expect(tiles[from].rows);
  for (int row = 0; row < tiles[from].rows; row++) {
    memcpy(to + row * stride, tiles[from].bytes[row], tiles[from].width);
    if (broken) memset(to + row * stride, 0xFF, tiles[from].width);
  }
}

/* The shapes that a product asks for; words of K of one step. */
static int words_of(const tile* c, const tile* a, const tile* b) {
  expect(c != a && c != b && a != b && c->rows && a->rows && b->rows);
  expect(a->rows == c->rows && b->width == c->width && a->width == 4 * b->rows && c->width % 4 == 0);
  return broken ? 0 : a->width / 4;
}

static float flushed(float value) { return fabsf(value) < 0x1p-126f ? copysignf(0, value) : value; }

static float wide(const uint8_t* bits) {
  uint32_t word = (uint32_t)bits[1] << 24 | (uint32_t)bits[0] << 16;
  float value;
  memcpy(&value, &word, 4);
  return flushed(value);
}

/* Even and odd elements of the words have sums of their own, which are added up at the end. */
void emulated_tdpbf16ps(uint8_t to, uint8_t left, uint8_t right) {
  tile *c = &tiles[to], *a = &tiles[left], *b = &tiles[right];
  int words = words_of(c, a, b);
  for (int m = 0; m < c->rows; m++) {
    for (int n = 0; n < c->width / 4; n++) {
      float even = 0, odd = 0, sum;
      for (int k = 0; k < words; k++) {
        even = flushed(fmaf(wide(a->bytes[m] + 4 * k), wide(b->bytes[k] + 4 * n), even));
        odd = flushed(fmaf(wide(a->bytes[m] + 4 * k + 2), wide(b->bytes[k] + 4 * n + 2), odd));
      }
      memcpy(&sum, c->bytes[m] + 4 * n, 4);
      sum = flushed(flushed(sum) + flushed(even + odd));
      memcpy(c->bytes[m] + 4 * n, &sum, 4);
    }
  }
}

static void bytes_product(uint8_t to, uint8_t left, uint8_t right, _Bool signs_left, _Bool signs_right) {
  tile *c = &tiles[to], *a = &tiles[left], *b = &tiles[right];
  int words = words_of(c, a, b);
  for (int m = 0; m < c->rows; m++) {
    for (int n = 0; n < c->width / 4; n++) {
      uint32_t sum;
      memcpy(&sum, c->bytes[m] + 4 * n, 4);
      for (int at = 0; at < 4 * words; at++) {
        uint8_t x = a->bytes[m][at], y = b->bytes[at / 4][4 * n + at % 4];
        sum += (uint32_t)((signs_left ? (int8_t)x : x) * (signs_right ? (int8_t)y : y));
      }
      memcpy(c->bytes[m] + 4 * n, &sum, 4);
    }
  }
}

void emulated_tdpbssd(uint8_t to, uint8_t left, uint8_t right) { bytes_product(to, left, right, 1, 1); }
void emulated_tdpbuud(uint8_t to, uint8_t left, uint8_t right) { bytes_product(to, left, right, 0, 0); }
void emulated_tdpbusd(uint8_t to, uint8_t left, uint8_t right) { bytes_product(to, left, right, 0, 1); }
void emulated_tdpbsud(uint8_t to, uint8_t left, uint8_t right) { bytes_product(to, left, right, 1, 0); }
