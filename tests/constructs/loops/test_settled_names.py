"""Numbers that threads keep, and that loops behind their last store read."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, elaborated

import tilec.language as T
from tilec.backends.cuda.nodes import Sync
from tilec.backends.pipeline import lower
from tilec.ir.nodes import For, walk
from tilec.targets import parse_target


def windows(own=False, again=False):
    """Sums of rows from the least of some places on; ``own``: each thread has another place; ``again``: the
    place moves in each trip."""

    @T.prim_func
    def kernel(
        begin: T.Tensor((4,), "int32"), X: T.Tensor((400,), "float32"), Y: T.Tensor((4, 300), "float32")
    ):
        with T.Kernel(1, threads=64):
            first = T.alloc_var("int32")
            first = 1024
            for i in T.serial(4):
                first = T.min(first, begin[i])
            if own:
                first = first + T.get_thread_binding() // 32
            for m in T.serial(4):
                for j in T.Parallel(64):
                    Y[m, first + m * 64 + j] = X[first + m * 64 + j]
                for j in T.Parallel(64):
                    Y[m, first + m * 64 + j] += 1.0
                if again:
                    first = first + 2

    return kernel


def expected(begin, x, again):
    y, first = np.zeros((4, 300), np.float32), int(begin.min())
    for m in range(4):
        place = slice(first + m * 64, first + m * 64 + 64)
        y[m, place] = x[place] + 1
        first += 2 * again
    return y


def barriers(kernel, *inputs):
    (launch,) = lower(elaborated(kernel, inputs, None, {}, {}), parse_target("sm_80")).launches
    loops = [stmt for stmt in walk(launch.body) if isinstance(stmt, For) and str(stmt.var.name) == "m"]
    return sum(isinstance(stmt, Sync) for loop in loops for stmt in walk(loop.body))


@pytest.mark.parametrize("again", [False, True])
def test_places_from_a_settled_number_on_are_right(again):
    begin, x = np.array([9, 5, 30, 7], np.int32), np.arange(400, dtype=np.float32)
    y = np.zeros((4, 300), np.float32)
    agree(windows(again=again), begin, x, y, expected=expected(begin, x, again))


def test_threads_do_not_wait_for_elements_of_their_own():
    inputs = (
        np.array([9, 5, 30, 7], np.int32),
        np.arange(400, dtype=np.float32),
        np.zeros((4, 300), np.float32),
    )
    assert barriers(windows(), *inputs) == 0


def test_threads_with_numbers_of_their_own_wait():
    inputs = (
        np.array([9, 5, 30, 7], np.int32),
        np.arange(400, dtype=np.float32),
        np.zeros((4, 300), np.float32),
    )
    assert barriers(windows(own=True), *inputs) > 0


def test_names_of_the_block_behind_those_that_threads_keep():
    """What a row is called by is each thread's, what is read of it once for all, between meetings."""

    @T.prim_func
    def kernel(X: T.Tensor((5, 16), "float32"), L: T.Tensor((5,), "int32"), Y: T.Tensor((5, 16), "float32")):
        with T.Kernel(2, threads=64) as pid:
            s = T.alloc_shared((16,), "int32")
            row, tx = T.alloc_var("int32"), T.get_thread_binding()
            row = pid
            while row < 5:
                at = row * 1
                if tx < 16:
                    s[tx] = tx * 2
                T.sync_threads()
                kept = L[at] % 3 + s[3]
                for j in T.Parallel(16):
                    Y[at, j] = X[at, (j + kept) % 16] + s[j]
                row += 2

    rows, steps = np.random.default_rng(0).standard_normal((5, 16)).astype(np.float32), np.arange(5)
    want = np.stack([np.roll(row, -(at % 3 + 6)) for at, row in enumerate(rows)]) + 2 * np.arange(16)
    agree(kernel, rows, steps.astype(np.int32), expected=want.astype(np.float32))
