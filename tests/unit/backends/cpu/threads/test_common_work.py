"""Loops that all threads of a block run alike run once; those that each runs for itself stay theirs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilec
import tilec.language as T
from tilec.backends.cpu.threads.threads_to_tiles import ThreadsToTiles
from tilec.ir.nodes import For, Parallel, walk
from tilec.language.frontend.elaborate import elaborate
from tilec.targets import parse_target

ROWS, COLUMNS, THREADS = 5, 96, 32


def softmax():
    """Each thread goes through the whole row for its largest element and its sum."""

    @T.prim_func
    def main(X: T.Tensor((ROWS, COLUMNS), "float32"), Y: T.Tensor((ROWS, COLUMNS), "float32")):
        with T.Kernel(ROWS, threads=THREADS) as row:
            thread = T.get_thread_binding()
            s = T.alloc_shared((COLUMNS,), "float32")
            for k in T.serial(COLUMNS // THREADS):
                s[k * THREADS + thread] = X[row, k * THREADS + thread]
            T.sync_threads()
            most = T.alloc_var("float32", init=-1e30)
            for j in T.serial(COLUMNS):
                most = T.max(most, s[j])
            total = T.alloc_var("float32")
            total = 0.0
            for j in T.serial(COLUMNS):
                total += T.exp(s[j] - most)
            for k in T.serial(COLUMNS // THREADS):
                Y[row, k * THREADS + thread] = T.exp(s[k * THREADS + thread] - most) / total

    return main


def steps():
    """The same in a loop of the block, from what it stored the trip before, beside names of threads and
    a variable of each thread."""

    @T.prim_func
    def main(X: T.Tensor((ROWS, COLUMNS), "float32"), Y: T.Tensor((ROWS, COLUMNS), "float32")):
        with T.Kernel(1, threads=COLUMNS):
            thread = T.get_thread_binding()
            s = T.alloc_shared((COLUMNS,), "float32")
            own = T.alloc_var("float32", init=0.0)
            s[thread] = 1.0
            T.sync_threads()
            for row in T.serial(ROWS):
                scale = s[row] + 1.0
                low = T.alloc_local((2,), "float32")
                low[0] = 0.0
                for j in T.serial(COLUMNS):
                    low[0] += X[row, j] * scale
                own += X[row, thread] + low[0]
                T.sync_threads()
                s[thread] = own
                T.sync_threads()
                Y[row, thread] = own

    return main


def apart(how):
    """Loops that differ between threads in what they add up, where they begin, or who runs them."""

    @T.prim_func
    def main(X: T.Tensor((ROWS, COLUMNS), "float32"), Y: T.Tensor((ROWS, THREADS), "float32")):
        with T.Kernel(ROWS, threads=THREADS) as row:
            thread = T.get_thread_binding()
            total = T.alloc_var("float32", init=0.0)
            if how == "begins":
                for j in T.serial(thread, COLUMNS):
                    total += X[row, j]
            elif how == "some":
                if thread < 7:
                    for j in T.serial(COLUMNS):
                        total += X[row, j]
            elif how == "before":
                total = T.cast(thread, "float32")
                for j in T.serial(COLUMNS):
                    total += X[row, j]
            else:
                for j in T.serial(COLUMNS):
                    total += X[row, j]
                total += T.cast(thread, "float32")
            Y[row, thread] = total

    return main


def loops_once(function: Any) -> int:
    """How many loops stand outside of those over threads, or in one of one iteration."""
    kernel = elaborate(function, name="kernel", dims={}, args={}, config={}, open_dims=True)
    made = ThreadsToTiles().apply(kernel, parse_target("x86-64-v3"))
    once = [stmt for stmt in walk(made.body) if isinstance(stmt, Parallel) and stmt.extents == (1,)]
    return sum(isinstance(inner, For) for stmt in once for inner in walk(stmt.body))


@pytest.mark.parametrize(("function", "count"), [(softmax(), 2), (steps(), 1)])
def test_what_all_threads_run_alike(function, count):
    assert loops_once(function) == count


@pytest.mark.parametrize("how", ["begins", "some", "before", "behind"])
def test_what_threads_run_each_for_itself(how):
    assert not loops_once(apart(how))
    X = np.random.default_rng(1).standard_normal((ROWS, COLUMNS), dtype=np.float32)
    Y = np.zeros((ROWS, THREADS), np.float32)
    tilec.compile(apart(how), target="cpu")(X, Y)
    threads, sums = np.arange(THREADS), X.sum(1)[:, None]
    wanted = {
        "begins": np.stack([X[:, thread:].sum(1) for thread in threads], 1),
        "some": np.where(threads < 7, sums, 0),
    }.get(how, sums + threads)
    np.testing.assert_allclose(Y, wanted, rtol=1e-4, atol=1e-4)


def test_softmax():
    X = np.random.default_rng(2).standard_normal((ROWS, COLUMNS), dtype=np.float32)
    Y = np.zeros_like(X)
    tilec.compile(softmax(), target="cpu")(X, Y)
    np.testing.assert_allclose(Y, np.exp(X) / np.exp(X).sum(1, keepdims=True), rtol=1e-5)


def test_steps():
    X = np.random.default_rng(3).standard_normal((ROWS, COLUMNS), dtype=np.float32)
    Y, own, s = np.zeros_like(X), np.zeros(COLUMNS, np.float32), np.ones(COLUMNS, np.float32)
    tilec.compile(steps(), target="cpu")(X, Y)
    for row in range(ROWS):
        own = own + X[row] + X[row].sum() * (s[row] + 1)
        s = own
        np.testing.assert_allclose(Y[row], own, rtol=1e-3, atol=1e-3)
