"""What loops compute of few bits, which GPUs look up."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, elaborated

import tilec.language as T
from tilec.backends.pipeline import lower
from tilec.targets import parse_target

LEVELS = (-1.0, -0.7, -0.53, -0.39, -0.28, -0.18, -0.09, 0.0, 0.08, 0.16, 0.25, 0.34, 0.44, 0.56, 0.72, 1.0)


def level(q):
    """One of 16 numbers, by choices."""
    value = LEVELS[15]
    for number in range(14, -1, -1):
        value = T.if_then_else(q == number, LEVELS[number], value)
    return value


def small_float(q):
    """The 4-bit float whose bits ``q`` are, by an exponential."""
    size = q & 7
    normal = (1.0 + 0.5 * T.cast(size & 1, "float32")) * T.exp2(T.cast(size >> 1, "float32") - 1.0)
    value = T.if_then_else(size < 2, T.cast(size, "float32") * 0.5, normal)
    return T.if_then_else(q >= 8, -value, value)


FLOATS = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
MEANT = {level: np.array(LEVELS), small_float: np.concatenate([FLOATS, -FLOATS])}


def weights(decoded):
    """A product with weights of 4 bits, and their sums of rows."""

    @T.prim_func
    def main(A: T.Tensor((64, 128), "float16"), W: T.Tensor((64, 64), "uint8"), S: T.Tensor((64,), "float16"),
             C: T.Tensor((64, 64), "float32"), R: T.Tensor((64,), "float32")):  # fmt: skip
        with T.Kernel(1, threads=128) as _:
            a, w = T.alloc_shared((64, 64), "float16"), T.alloc_shared((64, 32), "uint8")
            d, acc = T.alloc_shared((64, 64), "float16"), T.alloc_fragment((64, 64), "float32")
            f, sums = T.alloc_fragment((64, 64), "float32"), T.alloc_fragment((64,), "float32")
            T.clear(acc)
            T.clear(sums)
            for k in T.Pipelined(2, num_stages=2):
                T.copy(A[0, k * 64], a)
                T.copy(W[0, k * 32], w)
                for i, j in T.Parallel(64, 64):
                    q = (T.cast(w[i, j // 2], "int32") >> (j % 2 * 4)) & 15
                    d[i, j] = decoded(q) * S[i]
                    f[i, j] = decoded(q)
                T.gemm(a, d, acc, transpose_B=True)
                T.reduce_sum(f, sums, dim=1, clear=False)
            T.copy(acc, C)
            T.copy(sums, R)

    return main


@pytest.mark.parametrize("decoded", MEANT)
def test_numbers_of_four_bits(decoded):
    rng = np.random.default_rng(0)
    A = rng.integers(-2, 3, (64, 128)).astype("float16")
    W, S = rng.integers(0, 256, (64, 64), dtype=np.uint8), np.full(64, 2, "float16")
    numbers = MEANT[decoded][np.stack([W & 15, W >> 4], axis=-1).reshape(64, 128)]
    wanted = [A.astype(float) @ (2 * numbers).T, numbers.sum(axis=1)]
    agree(weights(decoded), A, W, S, expected=wanted, rtol=2e-3, atol=2e-2)
    lowered = lower(elaborated(weights(decoded), [A, W, S], None, {}, {}), parse_target("sm_90a"))
    tables = [note for note in lowered.body[0].notes if "looked up" in note]
    assert tables == ["what q comes to is looked up in a table of 16"]


def waves(x):
    return T.exp2(x * 0.5) + T.exp2(x * -0.5)


@T.prim_func
def mixed(X: T.Tensor((2048,), "int32"), M: T.Tensor((2048,), "int32"), Y: T.Tensor((2048,), "float32")):
    """Of a code, of one that two elements make, of a number of more bits, and of what the loop counts."""
    with T.Kernel(1, threads=32) as _:
        for i in T.Parallel(2048):
            code = M[i] & 7
            of_two = waves(T.cast(code + (X[i] & 1), "float32"))
            of_loop = waves(T.cast(i % 8, "float32")) * waves(T.cast(code, "float32"))
            Y[i] = of_loop + of_two + waves(T.cast(M[i] % 40, "float32")) - waves(T.cast(code, "float32"))


def test_what_other_numbers_decide_is_computed():
    rng = np.random.default_rng(0)
    X, M = (rng.integers(-1000, 1000, 2048).astype("int32") for _ in range(2))
    code, waved = M & 7, lambda x: 2.0 ** (x / 2) + 2.0 ** (-x / 2)
    of_loop = waved(np.arange(2048) % 8) * waved(code)
    agree(mixed, X, M, expected=of_loop + waved(code + (X & 1)) + waved(M % 40) - waved(code), rtol=1e-5)


@T.prim_func
def divided(M: T.Tensor((2048,), "int32"), Y: T.Tensor((2048,), "float32")):
    with T.Kernel(1, threads=32) as _:
        for i in T.Parallel(2048):
            code = M[i] & 7
            parts = T.if_then_else(code > 0, 60 // code, 1)
            Y[i] = waves(T.cast(parts, "float32") * 0.125)


def test_no_code_divides_in_vain():
    M = np.arange(2048, dtype="int32")
    part = np.where(M % 8, 60 // np.maximum(M % 8, 1), 1) / 8
    agree(divided, M, expected=2.0 ** (part / 2) + 2.0 ** (-part / 2), rtol=1e-5)
    lowered = lower(elaborated(divided, [M], None, {}, {}), parse_target("sm_80"))
    assert not any("looked up" in note for note in lowered.body[0].notes)


@T.prim_func
def chained(M: T.Tensor((2048,), "int32"), Y: T.Tensor((2048,), "int32")):
    """Each name reads the one before twice."""
    with T.Kernel(1, threads=32) as _:
        for i in T.Parallel(2048):
            value = M[i] & 31
            for _ in tuple(range(60)):
                value = (value * 3 + (value >> 1)) & 31
            Y[i] = value * value


def test_long_chains_of_codes_take_no_time():
    M = np.arange(2048, dtype="int32")
    value = M & 31
    for _ in range(60):
        value = (value * 3 + (value >> 1)) & 31
    agree(chained, M, expected=value * value)
