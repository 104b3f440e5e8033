"""Random numbers: curand's Philox4x32-10 streams."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, elaborated

import tilec.language as T
from tilec.errors import UnsupportedError


def philox(counter, key):
    """The four words of a counter (Salmon et al., 2011)."""
    c, k, low = list(counter), list(key), 0xFFFFFFFF
    for number in range(10):
        first, second = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(second >> 32) ^ c[1] ^ k[0], second & low, (first >> 32) ^ c[3] ^ k[1], first & low]
        k = [(k[0] + 0x9E3779B9) & low, (k[1] + 0xBB67AE85) & low] if number < 9 else k
    return c


def stream(seed, sequence, offset, count):
    """What curand_init(seed, sequence, offset) and ``count`` calls of curand give."""
    key, low = (seed & 0xFFFFFFFF, seed >> 32), 0xFFFFFFFF
    words = []
    for block in range(offset // 4, (offset + count) // 4 + 1):
        counter = (block & low, block >> 32, sequence & low, sequence >> 32)
        words += philox(counter, key)
    return np.array(words[offset % 4 : offset % 4 + count], np.uint32)


def test_the_generator_is_the_published_one():
    """The known answers of Random123 for Philox4x32-10."""
    assert philox((0, 0, 0, 0), (0, 0)) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    ones = 0xFFFFFFFF
    assert philox((ones,) * 4, (ones,) * 2) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]


@pytest.mark.parametrize(("seed", "sequence", "offset"), [(0, 0, 0), (0x123456789ABC, 7, 6)])
def test_numbers_are_those_of_curand(seed, sequence, offset):
    @T.prim_func
    def main(C: T.Tensor((9,), "uint32"), D: T.Tensor((2,), "float32")):
        with T.Kernel(1, threads=32):
            T.rng_init(T.uint64(seed), sequence, offset)
            for i in T.serial(9):
                C[i] = T.rng_rand()
            for i in T.serial(2):
                D[i] = T.rng_rand_float()

    words = stream(seed, sequence, offset, 11)
    uniform = words[9:].astype(np.float32) * np.float32(2.0**-32) + np.float32(2.0**-33)
    agree(main, expected=[words[:9], uniform], rtol=0, atol=0)


def test_every_thread_has_a_stream_of_its_own():
    @T.prim_func
    def main(C: T.Tensor((2, 32, 5), "uint32")):
        with T.Kernel(2, threads=32) as bx:
            tx = T.get_thread_binding()
            T.rng_init(42)
            for i in T.serial(5):
                C[bx, tx, i] = T.rng_rand()

    agree(main, expected=np.stack([stream(42, thread, 0, 5) for thread in range(64)]).reshape(2, 32, 5))


def test_normal_numbers_come_in_pairs():
    @T.prim_func
    def main(C: T.Tensor((5,), "float32")):
        with T.Kernel(1, threads=32):
            T.rng_init(3, 1)
            for i in T.serial(5):
                C[i] = T.rng_rand_float(dist="normal")

    words = stream(3, 1, 0, 6).astype(np.float64)
    radius = np.sqrt(-2 * np.log(words[::2] * 2.0**-32 + 2.0**-33))
    angle = (words[1::2] + 0.5) * 2.0**-32 * 2 * np.pi
    pairs = np.stack([np.sin(angle) * radius, np.cos(angle) * radius], axis=1).reshape(-1)
    agree(main, expected=pairs[:5], rtol=1e-4, atol=1e-5)


def test_other_generators_and_missing_states_are_errors():
    def kernel(body):
        @T.prim_func
        def main(C: T.Tensor((1,), "float32")):
            with T.Kernel(1, threads=32):
                C[0] = body()

        return main

    with pytest.raises(UnsupportedError, match="XORWOW"):
        elaborated(kernel(lambda: T.rng_init(1, generator="curandStateXORWOW_t")), (), None, {}, {})
    with pytest.raises(RuntimeError, match=r"T\.rng_rand before T\.rng_init"):
        elaborated(kernel(T.rng_rand), (), None, {}, {})
    with pytest.raises(ValueError, match='dist "uniform" or "normal"'):
        elaborated(kernel(lambda: T.rng_rand_float(16)), (), None, {}, {})
