/* Runs a fuzz target with random bytes where there is no libFuzzer: fuzz_random INPUTS [SEED]. Prints how many
 * launches were accepted. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
extern long fuzz_accepted;

/* xorshift64* (Vigna, 2016) */
static uint64_t next(uint64_t *state) {
  *state ^= *state >> 12;
  *state ^= *state << 25;
  *state ^= *state >> 27;
  return *state * UINT64_C(2685821657736338717);
}

int main(int argc, char **argv) {
  enum { MOST = 512 };
  uint8_t data[MOST];
  long inputs = argc > 1 ? atol(argv[1]) : 1000;
  uint64_t state = argc > 2 ? strtoull(argv[2], NULL, 10) * 2 + 1 : 1;
  for (long i = 0; i < inputs; i++) {
    size_t size = next(&state) % (MOST + 1);
    for (size_t at = 0; at < size; at++) data[at] = (uint8_t)(next(&state) >> 56);
    LLVMFuzzerTestOneInput(data, size);
  }
  printf("%ld inputs, %ld launches accepted\n", inputs, fuzz_accepted);
  return 0;
}
