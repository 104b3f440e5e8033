"""Packed numbers that become floats where they lie in their element."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, elaborated

import tilec.language as T
from tilec.backends.cuda.codegen import images as cuda
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.targets import parse_target

SM80 = parse_target("sm_80")
N = 512
RNG = np.random.default_rng(7)
BYTES = RNG.integers(0, 256, N // 2, np.uint8)
WORDS = RNG.integers(0, 1 << 32, N // 8, np.uint32)
NIBBLES = np.stack([BYTES & 15, BYTES >> 4], 1).reshape(-1)
OF_WORDS = (WORDS[:, None] >> np.arange(0, 32, 4, dtype=np.uint32) & 15).reshape(-1)


def of_bytes(number):
    """Element i is ``number`` of the byte that has nibble i, and i."""

    @T.prim_func
    def main(B: T.Tensor((N // 2,), "uint8"), C: T.Tensor((N,), "float32")):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(N):
                C[i] = number(B[i // 2], i)

    return main


def of_words(dtype, number):
    @T.prim_func
    def main(B: T.Tensor((N // 8,), dtype), C: T.Tensor((N,), "float32")):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(N):
                C[i] = number(B[i // 8], i)

    return main


def by_threads(offset):
    """A name of the number, a byte for each thread's trip."""

    @T.prim_func
    def main(B: T.Tensor((N // 2,), "uint8"), C: T.Tensor((N,), "float32")):
        with T.Kernel(1, threads=64):
            t = T.get_thread_binding(0)
            for i in T.serial(8):
                q = (B[t * 4 + i // 2] >> T.cast(i % 2 * 4, "uint8")) & T.uint8(15)
                C[t * 8 + i] = T.cast(T.cast(q, "int32") + offset, "float32")

    return main


def nibble(byte, i):
    return (byte >> T.cast(i % 2 * 4, "uint8")) & T.uint8(15)


def source(kernel) -> str:
    return cuda.source(to_tir(lower(elaborated(kernel, (), None, {}, {}), SM80), SM80), SM80, "kernel")


def floats(number):
    """What makes a float of an integer."""
    return lambda element, i: T.cast(number(element, i), "float32")


def of_word(word, i):
    return word >> T.cast(i % 8 * 4, "uint32") & T.uint32(15)


def of_half(word, i):
    return word >> T.cast(i % 8 * 2, "uint32") & T.uint32(0xFFFF)


HALVES = (WORDS[:, None] >> np.arange(0, 16, 2, dtype=np.uint32) & 0xFFFF).reshape(-1)


def case(name, kernel, given, expected):
    return pytest.param(kernel, given, expected, id=name)


@pytest.mark.parametrize(
    ("kernel", "given", "expected"),
    [
        case("bits", of_bytes(floats(nibble)), BYTES, NIBBLES),
        case("less 8", of_bytes(lambda b, i: floats(nibble)(b, i) - 8.0), BYTES, NIBBLES - 8.0),
        case("and 3", of_bytes(lambda b, i: floats(nibble)(b, i) + 3.0), BYTES, NIBBLES + 3.0),
        case("less a half", of_bytes(lambda b, i: floats(nibble)(b, i) - 0.5), BYTES, NIBBLES - 0.5),
        case(
            "integers less 8",
            of_bytes(floats(lambda b, i: T.cast(nibble(b, i), "int32") - 8)),
            BYTES,
            NIBBLES - 8.0,
        ),
        case("high ones", of_bytes(floats(lambda b, i: b >> T.uint8(4))), BYTES, (BYTES >> 4).repeat(2)),
        case("of words", of_words("uint32", floats(of_word)), WORDS, OF_WORDS),
        case(
            "of signed words",
            of_words("int32", floats(lambda w, i: (w >> (i % 8 * 4) & 15) - 8)),
            WORDS.view(np.int32),
            OF_WORDS - 8.0,
        ),
        case("of threads, less 8", by_threads(-8), BYTES, NIBBLES - 8.0),
        case("of threads, and 100", by_threads(100), BYTES, NIBBLES + 100.0),
    ],
)
def test_they_are_counted_in_their_place(kernel, given, expected):
    assert "= tilec_field(" in source(kernel).replace("= (tilec_field", "= tilec_field")
    agree(kernel, given, expected=expected.astype(np.float32), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("kernel", "given", "expected"),
    [
        case("whole bytes", of_bytes(floats(lambda b, i: b)), BYTES, BYTES.repeat(2)),
        case(
            "sums of bytes that wrap around",
            of_bytes(floats(lambda b, i: nibble(b, i) + T.uint8(250))),
            BYTES,
            NIBBLES + np.uint8(250),
        ),
        case("bits beyond a mantissa", of_words("uint32", floats(of_half)), WORDS, HALVES),
    ],
)
def test_others_are_not(kernel, given, expected):
    assert "= tilec_field(" not in source(kernel)
    agree(kernel, given, expected=expected.astype(np.float32), rtol=0, atol=0)


def test_a_name_that_counts_otherwise_stays():
    """A number that is converted, and named elsewhere, too."""

    @T.prim_func
    def main(B: T.Tensor((N // 2,), "uint8"), C: T.Tensor((N,), "float32"), D: T.Tensor((N,), "uint8")):
        with T.Kernel(1, threads=64):
            t = T.get_thread_binding(0)
            for i in T.serial(8):
                q = (B[t * 4 + i // 2] >> T.cast(i % 2 * 4, "uint8")) & T.uint8(15)
                C[t * 8 + i] = T.cast(q, "float32")
                D[t * 8 + i] = q

    assert "= tilec_field(" not in source(main)
    agree(main, BYTES, expected=(NIBBLES.astype(np.float32), NIBBLES), rtol=0, atol=0)
