"""Sums of products of bytes that a thread has side by side: T.dp4a, and what authors write out."""

from __future__ import annotations

import numpy as np
import pytest
from agree import TARGETS, agree, elaborated

import tilec.language as T
from tilec.backends.cuda.codegen import images as cuda
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.targets import parse_target

K, ROWS = 64, 32


def kernel(form):
    """Each thread's row times a vector."""

    @T.prim_func
    def main(A: T.Tensor((ROWS, K), "int8"), B: T.Tensor((K,), "int8"), C: T.Tensor((ROWS,), "int32")):
        with T.Kernel(1, threads=ROWS):
            t = T.get_thread_binding(0)
            a, b = T.alloc_local((16,), "int8"), T.alloc_local((16,), "int8")
            acc = T.alloc_local((1,), "int32")
            acc[0] = t
            for k in T.serial(K // 16):
                for v in T.vectorized(16):
                    a[v] = A[t, k * 16 + v]
                    b[v] = B[k * 16 + v]
                for i in T.serial(4):
                    form(a, b, acc, i)
            C[t] = acc[0]

    return main


def by_name(a, b, acc, i):
    T.dp4a(a[i * 4], b[i * 4], acc[0])


def written_out(a, b, acc, i):
    total = T.cast(a[i * 4], "int32") * T.cast(b[i * 4], "int32")
    for k in range(1, 4):
        total = total + T.cast(a[i * 4 + k], "int32") * T.cast(b[i * 4 + k], "int32")
    acc[0] = acc[0] + total


def turned(a, b, acc, i):
    """Neighbours, but not in order."""
    for k in range(3):
        acc[0] += T.cast(a[i * 4 + k], "int32") * T.cast(b[i * 4 + k], "int32")
    acc[0] += T.cast(a[i * 4 + 3], "int32") * T.cast(b[i * 4 + 3], "int32")


def between_words(a, b, acc, i):
    """Four neighbours that begin within a word."""
    total = acc[0] + T.cast(a[i * 4 + 3], "int32") * T.cast(b[i * 4 + 3], "int32")
    for k in range(3):
        total = total + T.cast(a[i * 4 + k], "int32") * T.cast(b[i * 4 + k], "int32")
    acc[0] = total


FORMS = {by_name: 1, written_out: 1, turned: 0, between_words: 0}
#: What loops of these threads read for at once, and have the code of.
TRIPS = 2


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_sums_of_four_products(form):
    rng = np.random.default_rng(0)
    a, b = rng.integers(-128, 128, (ROWS, K), np.int8), rng.integers(-128, 128, K, np.int8)
    a[0] = b[:] = -128
    expected = a.astype(np.int32) @ b.astype(np.int32) + np.arange(ROWS, dtype=np.int32)
    agree(kernel(form), a, b, expected=expected, targets=TARGETS)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_gpus_have_one_instruction_for_them(form):
    target = parse_target("sm_80")
    a, b = np.zeros((ROWS, K), np.int8), np.zeros(K, np.int8)
    made = to_tir(lower(elaborated(kernel(form), (a, b), None, {}, {}), target), target)
    text = cuda.source(made, target, "kernel").rsplit("__global__", 1)[1]
    assert text.count("tilec_dp4a(") == FORMS[form] * TRIPS


def unpacked(bits, signed, kind):
    """Each thread's row of packed weights times a vector."""
    per = 8 // bits

    @T.prim_func
    def main(A: T.Tensor(K, "int8"), W: T.Tensor((ROWS, K // per), "uint8"), C: T.Tensor(ROWS, "int32")):
        with T.Kernel(1, threads=ROWS):
            t = T.get_thread_binding(0)
            packed = T.alloc_local((16 // per,), "uint8")
            a, w = T.alloc_local((16,), "int8"), T.alloc_local((16,), "int8")
            acc = T.alloc_local((1,), "int32")
            T.clear(acc)
            for k in T.serial(K // 16):
                for v in T.vectorized(16 // per):
                    packed[v] = W[t, k * (16 // per) + v]
                for v in T.vectorized(16):
                    a[v] = A[k * 16 + v]
                for i in kind(16):
                    field = packed[i // per] >> T.cast(i % per * bits, "uint8") & T.uint8((1 << bits) - 1)
                    w[i] = T.cast(field, "int8") - T.int8(signed)
                for i in T.serial(4):
                    T.dp4a(a[i * 4], w[i * 4], acc[0])
            C[t] = acc[0]

    return main


@pytest.mark.parametrize(("bits", "less", "kind"), [(2, 1, T.serial), (4, 8, T.unroll), (1, 0, T.serial)])
def test_threads_unpack_four_weights_at_a_time(bits, less, kind):
    rng = np.random.default_rng(1)
    a, w = rng.integers(-128, 128, K, np.int8), rng.integers(0, 256, (ROWS, K * bits // 8), np.uint8)
    fields = w[:, :, None] >> np.arange(0, 8, bits) & (1 << bits) - 1
    expected = (fields.reshape(ROWS, K).astype(np.int32) - less) @ a.astype(np.int32)
    agree(unpacked(bits, less, kind), a, w, expected=expected, targets=TARGETS)
    target = parse_target("sm_80")
    made = to_tir(lower(elaborated(unpacked(bits, less, kind), (a, w), None, {}, {}), target), target)
    assert cuda.source(made, target, "kernel").count("= tilec_spread_") == 4 * TRIPS
