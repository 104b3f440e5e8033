"""Threads that go through runs of neighbours: what lanes of a CPU go through instead, as NumPy has it."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree

import tilec.language as T
from tilec.backends.pipeline import lower
from tilec.ir.exprs import uses
from tilec.ir.nodes import Parallel, Store, walk
from tilec.language.frontend.elaborate import elaborate
from tilec.targets import parse_target

ROWS, THREADS = 5, 64
HOSTS = ("cpu",)


def numbers(*shape: int, dtype: str = "float16") -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(dtype)


def normed(N, kept=True):
    """RMSNorm by vectors of eight, which threads keep or load again; a test where rows end."""

    @T.prim_func
    def main(X: T.Tensor((ROWS, N), "float16"), Y: T.Tensor((ROWS, N), "float16")):
        with T.Kernel(ROWS, threads=THREADS) as row:
            tx = T.get_thread_binding()
            x = T.alloc_local((T.ceildiv(N, 8 * THREADS) * 8,), "float16")
            parts = T.alloc_shared((THREADS,), "float32")
            total = T.alloc_var("float32", init=0.0)
            for i in T.serial(T.ceildiv(N, 8 * THREADS)):
                for e in T.vectorized(8):
                    if (i * THREADS + tx) * 8 + e < N:
                        x[i * 8 + e] = X[row, (i * THREADS + tx) * 8 + e]
                    else:
                        x[i * 8 + e] = 0
            for k in T.serial(T.ceildiv(N, 8 * THREADS) * 8):
                total += T.cast(x[k], "float32") * T.cast(x[k], "float32")
            parts[tx] = total
            T.sync_threads()
            total = 0
            for w in T.serial(THREADS):
                total += parts[w]
            for i in T.serial(T.ceildiv(N, 8 * THREADS)):
                if (i * THREADS + tx) * 8 < N:
                    for e in T.vectorized(8):
                        if kept:
                            Y[row, (i * THREADS + tx) * 8 + e] = x[i * 8 + e] * T.rsqrt(total / N)
                        else:
                            y = X[row, (i * THREADS + tx) * 8 + e]
                            Y[row, (i * THREADS + tx) * 8 + e] = y * T.rsqrt(total / N)

    return main


@pytest.mark.parametrize(("N", "kept"), [(1024, True), (1024, False), (600, True)])
def test_sums_of_runs(N, kept):
    X = numbers(ROWS, N)
    wide = X.astype(np.float32)
    wanted = wide / np.sqrt((wide * wide).mean(1, keepdims=True))
    agree(normed(N, kept), X, expected=wanted.astype(np.float16), targets=HOSTS)


def extremes(online):
    """The largest and the smallest element of a thread's runs in one loop, beside a running sum that every
    trip scales again where it is ``online``."""

    @T.prim_func
    def main(X: T.Tensor((ROWS, 4 * THREADS), "float32"), Y: T.Tensor((ROWS, 3, THREADS), "float32")):
        with T.Kernel(ROWS, threads=(16, 4)) as row:
            tx, ty = T.get_thread_binding(0), T.get_thread_binding(1)
            most, least = T.alloc_var("float32", init=-1e30), T.alloc_var("float32", init=1e30)
            total = T.alloc_var("float32", init=0.0)
            before = T.alloc_var("float32")
            for e in T.serial(4):
                x = X[row, (ty * 16 + tx) * 4 + e]
                before = most
                most = T.max(most, x)
                least = T.min(least, x)
                if online:
                    total = total * T.exp(before - most) + T.exp(x - most)
                else:
                    total += x
            Y[row, 0, ty * 16 + tx] = most
            Y[row, 1, ty * 16 + tx] = least
            Y[row, 2, ty * 16 + tx] = total

    return main


@pytest.mark.parametrize("online", [False, True])
def test_extremes_of_runs(online):
    X = numbers(ROWS, 4 * THREADS, dtype="float32")
    runs = X.reshape(ROWS, THREADS, 4)
    most = runs.max(2)
    total = np.exp(runs - most[..., None]).sum(2) if online else runs.sum(2)
    agree(extremes(online), X, expected=np.stack([most, runs.min(2), total], 1), targets=HOSTS)


def unpacked(flat):
    """Numbers of four bits and their scales by way of arrays of a thread, to a tile of eight a thread."""

    @T.prim_func
    def main(
        B: T.Tensor((ROWS, THREADS, 4), "uint8"),
        S: T.Tensor((ROWS, 2 * THREADS), "float32"),
        Y: T.Tensor((ROWS, 16, 32), "float16"),
    ):
        with T.Kernel(ROWS, threads=THREADS) as row:
            tx = T.get_thread_binding()
            bytes_of, own = T.alloc_local((4,), "uint8"), T.alloc_local((8,), "float16")
            tile = T.alloc_shared((16, 32), "float16")
            for e in T.vectorized(4):
                bytes_of[e] = B[row, tx, e]
            for e in T.serial(8):
                number = (bytes_of[e // 2] >> T.cast(e % 2 * 4, "uint8")) & T.uint8(15)
                own[e] = T.cast(number, "float32") * S[row, tx * 2 + e // 4]
            for e in T.vectorized(8):
                tile[(tx * 8 + e) // 32, (tx * 8 + e) % 32] = own[e]
            if flat:
                T.sync_threads()
                for e in T.serial(8):
                    Y[row, e * 2 + tx // 32, tx % 32] = tile[e * 2 + tx // 32, tx % 32]
            else:
                T.copy(tile, Y[row, :, :])

    return main


@pytest.mark.parametrize("flat", [False, True])
def test_numbers_of_bytes(flat):
    B = np.random.default_rng(1).integers(0, 256, (ROWS, THREADS, 4), dtype=np.uint8)
    S = numbers(ROWS, 2 * THREADS, dtype="float32")
    found = np.stack([B & 15, B >> 4], -1).reshape(ROWS, THREADS, 2, 4)
    wanted = (found * S.reshape(ROWS, THREADS, 2, 1)).reshape(ROWS, 16, 32).astype(np.float16)
    agree(unpacked(flat), B, S, expected=wanted, targets=HOSTS)


def carried():
    """Sums that go on from element to element, in arrays that come and go as runs."""

    @T.prim_func
    def main(X: T.Tensor((ROWS, 8 * THREADS), "float32"), Y: T.Tensor((ROWS, 8 * THREADS), "float32")):
        with T.Kernel(ROWS, threads=THREADS) as row:
            tx = T.get_thread_binding()
            x = T.alloc_local((8,), "float32")
            for e in T.vectorized(8):
                x[e] = X[row, tx * 8 + e]
            for e in T.serial(1, 8):
                x[e] += x[e - 1]
            for p in T.serial(4):
                x[2 * p] = x[2 * p] - x[2 * p + 1]
            for e in T.vectorized(8):
                Y[row, tx * 8 + e] = x[e]

    return main


def test_elements_that_follow_each_other():
    X = numbers(ROWS, 8 * THREADS, dtype="float32")
    wanted = X.reshape(ROWS, THREADS, 8).cumsum(2)
    wanted[..., ::2] -= wanted[..., 1::2]
    agree(carried(), X, expected=wanted.reshape(X.shape), targets=HOSTS)


def rows_of_threads():
    """A row of 4096 for each thread, which are too many for a run."""

    @T.prim_func
    def main(X: T.Tensor((128, 4096), "float32"), Y: T.Tensor((128, 4096), "float32")):
        with T.Kernel(1, threads=128):
            row = T.get_thread_binding()
            most, total = T.alloc_var("float32", init=-1e30), T.alloc_var("float32", init=0.0)
            for j in T.serial(4096):
                most = T.max(most, X[row, j])
            for j in T.serial(4096):
                total += T.exp(X[row, j] - most)
            for j in T.serial(4096):
                Y[row, j] = T.exp(X[row, j] - most) / total

    return main


def test_long_rows_of_threads():
    X = numbers(128, 4096, dtype="float32")
    powers = np.exp(X - X.max(1, keepdims=True))
    wanted = powers / powers.sum(1, keepdims=True)
    agree(rows_of_threads(), X, expected=wanted, targets=HOSTS)


def test_threads_with_long_rows_run_one_by_one():
    made = elaborate(rows_of_threads(), name="kernel", dims={}, args={}, config={}, open_dims=True)
    lowered = lower(made, parse_target("x86-64-v4"))
    loops = [loop for loop in walk(lowered.launches[0].body) if isinstance(loop, Parallel)]
    assert [loop.extents for loop in loops] == [(4096,)] * 3


def test_lanes_are_neighbours():
    """Every loop that reads or writes the tensors has its elements side by side."""
    made = elaborate(normed(1024), name="kernel", dims={}, args={}, config={}, open_dims=True)
    lowered = lower(made, parse_target("x86-64-v4"), until="threads_to_tiles")
    stores = [
        (loop, stmt)
        for loop in walk(lowered.launches[0].body)
        if isinstance(loop, Parallel)
        for stmt in walk(loop.body)
        if isinstance(stmt, Store) and stmt.buffer.name == "Y"
    ]
    assert stores
    for loop, store in stores:
        assert loop.extents == (8 * THREADS,)
        assert uses(store.indices[-1], loop.vars)
