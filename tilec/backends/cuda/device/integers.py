"""Device functions of integers: what a GPU compiles, and what the emulator computes of them."""

from __future__ import annotations

from tilec.backends.cuda.device.helper import Helper

#: The product of two words in 64 bits, by one instruction for both halves: the C++ compiler, which is kept
#: from looking into it, makes two of it where the low half is used alone as well.
WIDE = Helper("tilec_wide", """
__device__ __forceinline__ unsigned long long tilec_wide(unsigned left, unsigned right) {
  unsigned long long product;
  asm("mul.wide.u32 %0, %1, %2;" : "=l"(product) : "r"(left), "r"(right));
  return product;
}
""", lambda lanes, left, right: lanes.ptx("mul.wide.u32", left, right))  # fmt: skip
