"""Loops over tensors of one axis that end anywhere: right everywhere, on GPUs in vectors but in the last
block."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, roads

import tilec.language as T
from tilec.ir.guards import Guard

TARGETS = ("cpu", "sm_80", "sm_90a", "gfx942")
RNG = np.random.default_rng(0)


def added(dtype="float16", block=512):
    """Sums by fragments, and halves of them through a tile, of blocks that the author tests and not."""
    n = T.dynamic("n")

    @T.prim_func
    def kernel(A: T.Tensor((n,), dtype), B: T.Tensor((n,), dtype), C: T.Tensor((n,), dtype)):
        with T.Kernel(T.ceildiv(n, block), threads=32) as bx:
            a = T.alloc_fragment((block,), dtype)
            s = T.alloc_shared((block,), dtype)
            T.copy(A[bx * block], a)
            for i in T.Parallel(block):
                a[i] = a[i] + B[bx * block + i]
            T.copy(a, s)
            for i in T.Parallel(block):
                if bx * block + i < n:
                    C[bx * block + i] = s[i] / 2

    return kernel


def counted(blocks=3, block=1024):
    """How often each number occurs: elements tell places in a tile, in a loop over parts."""
    n = T.dynamic("n")

    @T.prim_func
    def kernel(X: T.Tensor((n,), "uint8"), H: T.Tensor((256,), "int32")):
        with T.Kernel(blocks, threads=64) as bx:
            h = T.alloc_shared((256,), "int32")
            T.clear(h)
            for k in T.serial(T.ceildiv(n, blocks * block)):
                for i in T.Parallel(block):
                    p = (k * blocks + bx) * block + i
                    if p < n:
                        T.atomic_add(h[T.Cast("int32", X[p])], 1)
            for i in T.Parallel(256):
                T.atomic_add(H[i], h[i])

    return kernel


def summed(blocks=3, block=1024):
    """Sums of parts in a loop, told by one thread."""
    n = T.dynamic("n")

    @T.prim_func
    def kernel(X: T.Tensor((n,), "float16"), S: T.Tensor((blocks,), "float32")):
        with T.Kernel(blocks, threads=64) as bx:
            parts = T.alloc_fragment((block,), "float32")
            total = T.alloc_fragment((1,), "float32")
            T.clear(parts)
            for k in T.serial(T.ceildiv(T.ceildiv(n, block), blocks)):
                for i in T.Parallel(block):
                    parts[i] += X[(k * blocks + bx) * block + i]
            T.reduce_sum(parts, total)
            if T.get_thread_binding() == 0:
                S[bx] = total[0]

    return kernel


def shifted(block=512):
    """A tensor from its second element on, where no vector begins, and back to front."""
    n = T.dynamic("n")

    @T.prim_func
    def kernel(X: T.Tensor((n,), "float16"), Y: T.Tensor((n,), "float16"), Z: T.Tensor((n,), "float16")):
        with T.Kernel(T.ceildiv(n, block), threads=32) as bx:
            for i in T.Parallel(block):
                Y[bx * block + i] = X[bx * block + i + 1]
            for i in T.Parallel(block):
                if bx * block + i < n:
                    Z[n - 1 - (bx * block + i)] = X[bx * block + i]

    return kernel


def scaled(block=512):
    """A row a block, times a gain: both are held alike."""
    m, n = T.dynamic("m n")

    @T.prim_func
    def kernel(X: T.Tensor((m, n), "float16"), G: T.Tensor((n,), "float16"), Y: T.Tensor((m, n), "float16")):
        with T.Kernel(m, threads=32) as row:
            x, gain = (T.alloc_fragment((block,), "float16") for _ in range(2))
            T.copy(X[row, 0], x)
            T.copy(G[0], gain)
            for i in T.Parallel(block):
                if i < n:
                    Y[row, i] = x[i] * gain[i]

    return kernel


def instructions(kernel, *inputs, least):
    return [road.instruction for road in roads(kernel, *inputs, dims={"n": Guard(min=least)})]


@pytest.mark.parametrize("count", [16, 511, 512, 513, 1500])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_elementwise(count, dtype):
    A, B = (RNG.integers(-8, 8, count).astype(dtype) for _ in range(2))
    dims = {"n": Guard(min=16)}
    agree(added(dtype), A, B, dims=dims, expected=(A + B) / 2, targets=TARGETS)
    found = instructions(added(dtype), A, B, least=16)
    assert not any("element by element" in each for each in found)
    assert "single elements where a tensor ends" in found


@pytest.mark.parametrize("count", [16, 1023, 3072, 6150, 10000])
def test_places_that_elements_tell(count):
    X, H = RNG.integers(0, 256, count).astype(np.uint8), np.zeros(256, np.int32)
    expected = np.bincount(X, minlength=256).astype(np.int32)
    agree(counted(), X, H, dims={"n": Guard(min=16)}, expected=expected, targets=TARGETS)
    assert "X is read element by element" not in instructions(counted(), X, H, least=16)


@pytest.mark.parametrize("count", [16, 1024, 3071, 9999])
def test_loops_over_parts(count):
    X = RNG.integers(-8, 8, count).astype(np.float16)
    padded = np.zeros(-(-count // 3072) * 3072, np.float32)
    padded[:count] = X
    expected = padded.reshape(-1, 3, 1024).sum((0, 2))
    agree(summed(), X, dims={"n": Guard(min=8)}, expected=expected, targets=TARGETS)
    found = instructions(summed(), X, least=8)
    assert {"vectors of 16 bytes", "single elements where a tensor ends"} <= set(found)


def test_tensors_that_may_hold_no_vector_stay():
    X = np.zeros(40, np.float16)
    assert "A is read element by element" in instructions(added(), X, X, least=7)


@pytest.mark.parametrize("count", [16, 700])
def test_what_begins_between_vectors_is_not_parted(count):
    X = RNG.integers(-8, 8, count).astype(np.float16)
    expected = [np.append(X[1:], np.float16(0)), X[::-1].copy()]
    agree(shifted(), X, dims={"n": Guard(min=16)}, expected=expected, targets=TARGETS)
    assert "single elements where a tensor ends" not in instructions(shifted(), X, least=16)


@pytest.mark.parametrize(("div", "are_parted"), [(1, False), (8, True)])
def test_gains_of_rows_that_begin_anywhere_are_held_as_these_are(div, are_parted):
    n = 200 + div
    X, G = (RNG.integers(-8, 8, shape).astype(np.float16) for shape in ((3, n), n))
    dims = {"n": Guard(min=16, div=div)}
    agree(scaled(), X, G, dims=dims, expected=X * G, targets=TARGETS)
    found = [road.instruction for road in roads(scaled(), X, G, dims=dims)]
    assert ("G is read element by element" in found) != are_parted


@pytest.mark.parametrize("dtype", ["float64", "int64"])
def test_tiles_of_elements_wider_than_words_start_beside_each_other(dtype):
    n, block = T.dynamic("n"), 64

    @T.prim_func
    def kernel(A: T.Tensor((n,), dtype), B: T.Tensor((n,), dtype), C: T.Tensor((n,), dtype)):
        with T.Kernel(T.ceildiv(n, block), threads=32) as bx:
            a, b = T.alloc_shared((block,), dtype), T.alloc_shared((block,), dtype)
            T.copy(A[bx * block], a)
            T.copy(B[bx * block], b)
            for i in T.Parallel(block):
                C[bx * block + i] = a[i] - b[i]

    a, b = (RNG.integers(-9, 9, 131).astype(dtype) for _ in range(2))
    agree(kernel, a, b, expected=a - b, targets=TARGETS)
    assert roads(kernel, a, b, dims={"n": Guard()})[0].instruction.startswith("cp.async of 16 bytes")


def test_quotients_and_maxima_of_elements_behind_the_end():
    """They are 0: divided by, the divisor of a number and of 0; in maxima, numbers of no memory."""

    @T.prim_func
    def kernel(A: T.Tensor((6, 8), "float32"), C: T.Tensor((2, 9, 16), "float32")):
        with T.Kernel(1, threads=32):
            for i, j in T.Parallel(9, 16):
                C[0, i, j] = A[i, j % 8] / A[i, j]
                a, b = A[i, j + 1], A[i, j * 2]
                C[1, i, j] = T.clamp(T.max(T.Select(a >= b, a, b), A[i, j]), -1.0, 1.0)

    i, j = np.indices((9, 16))
    a = RNG.standard_normal((6, 8)).astype(np.float32)
    whole = np.pad(a, ((0, 3), (0, 32)))
    most = np.maximum(np.maximum(whole[i, j + 1], whole[i, j * 2]), whole[i, j])
    with np.errstate(all="ignore"):
        wanted = [whole[i, j % 8] / whole[i, j], np.clip(most, -1, 1)]
    agree(kernel, a, expected=np.stack(wanted).astype(np.float32), targets=("cpu", "sm_80"))
