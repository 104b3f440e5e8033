"""Loops of threads that share out what there is: as many trips in each, with a test inside."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilec
import tilec.language as T
from tilec.backends.cpu.passes.loops.even_trips import EvenTrips
from tilec.ir.nodes import For, If, walk
from tilec.language.frontend.elaborate import elaborate
from tilec.lowering.passes.widen_indices import WidenIndices
from tilec.targets import parse_target

RANDOM = np.random.default_rng(5)
CPU = parse_target("x86-64-v3")


def strided(begins: Any, step: int, ends: Any = None, blocks: int = 1):
    """Each of 32 iterations doubles and counts what it comes to from a place of its own."""
    n = T.dynamic("n")

    @T.prim_func
    def main(x: T.Tensor((n,), "float32"), y: T.Tensor((n,), "float32"), c: T.Tensor((blocks, 32), "int32")):
        with T.Kernel(blocks, threads=32) as block:
            for i in T.Parallel(32):
                count = T.alloc_var("int32", init=0)
                for j in T.serial(begins(i, block), n if ends is None else ends(i, n), step):
                    y[j] = x[j] * 2.0
                    count += 1
                c[block, i] = count

    return main


def left_early():
    """A loop that an iteration may leave."""
    n = T.dynamic("n")

    @T.prim_func
    def main(x: T.Tensor((n,), "float32"), c: T.Tensor((32,), "int32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(32):
                count = T.alloc_var("int32", init=0)
                for j in T.serial(i, n, 32):
                    if x[j] < 0.0:
                        break
                    count += 1
                c[i] = count

    return main


def looked_up():
    """Loops that begin at a place of their own that each iteration looks up."""
    n = T.dynamic("n")

    @T.prim_func
    def main(x: T.Tensor((n,), "int32"), c: T.Tensor((32,), "int32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(32):
                begins = x[31 - i]
                count = T.alloc_var("int32", init=0)
                for j in T.serial(begins + i, n, 64):
                    count += x[j]
                c[i] = count

    return main


def ragged():
    """Iterations share out a row whose ends are looked up."""
    n = T.dynamic("n")

    @T.prim_func
    def main(x: T.Tensor((n,), "int32"), ends: T.Tensor((4,), "int32"), c: T.Tensor((3, 32), "int32")):
        with T.Kernel(3, threads=32) as row:
            first = ends[row]
            stop = ends[row + 1]
            for i in T.Parallel(32):
                count = T.alloc_var("int32", init=0)
                for j in T.serial(first + i, stop, 32):
                    count += x[j]
                c[row, i] = count

    return main


def overwritten():
    """A loop that begins where memory said that it begins before it said something else."""
    n = T.dynamic("n")

    @T.prim_func
    def main(x: T.Tensor((n,), "int32"), c: T.Tensor((1,), "int32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(1):
                begins = c[0]
                c[0] = n
                count = T.alloc_var("int32", init=0)
                for j in T.serial(begins + i, n, 2):
                    count += x[j]
                c[0] = count

    return main


def is_even(function: Any) -> bool:
    """Whether a loop inside of the iterations has become one with a test."""
    kernel = elaborate(function, name="kernel", dims={}, args={}, config={}, open_dims=True)
    made = EvenTrips().apply(WidenIndices().apply(kernel, CPU), CPU)
    loops = [stmt for stmt in walk(made.body) if isinstance(stmt, For)]
    return any(isinstance(stmt.body[-1], If) and stmt.var.name.endswith("_trip") for stmt in loops)


@pytest.mark.parametrize(
    ("function", "even"),
    [
        (strided(lambda i, block: i, 32), True),
        (strided(lambda i, block: block * 32 + i, 64, blocks=2), True),
        (strided(lambda i, block: i % 4 * 8 + i // 4, 32), True),
        (strided(lambda i, block: i, 1), False),
        (strided(lambda i, block: 31 - i, 32), False),
        (strided(lambda i, block: block, 1), False),
        (strided(lambda i, block: i, 32, ends=lambda i, n: 64), False),
        (strided(lambda i, block: i, 32, ends=lambda i, n: n - i), False),
        (left_early(), False),
        (looked_up(), False),
        (overwritten(), True),
        (ragged(), True),
    ],
)
def test_which_loops_have_a_test(function, even):
    assert is_even(function) == even


def test_bounds_from_memory():
    x, c, one = np.arange(3, 303, dtype=np.int32), np.zeros(32, np.int32), np.array([5], np.int32)
    tilec.compile(looked_up(), target="cpu")(x, c)
    np.testing.assert_array_equal(c, [x[x[31 - i] + i :: 64].sum() for i in range(32)])
    tilec.compile(overwritten(), target="cpu")(x, one)
    assert one[0] == x[5::2].sum()


def test_ragged_rows():
    x, ends, c = (
        np.arange(300, dtype=np.int32),
        np.array([0, 7, 7, 290], np.int32),
        np.zeros((3, 32), np.int32),
    )
    tilec.compile(ragged(), target="cpu")(x, ends, c)
    wanted = [[x[ends[row] : ends[row + 1]][i::32].sum() for i in range(32)] for row in range(3)]
    np.testing.assert_array_equal(c, wanted)


@pytest.mark.parametrize("n", [0, 1, 31, 32, 33, 100, 515])
@pytest.mark.parametrize(
    ("begins", "step", "blocks"),
    [
        (lambda i, block: i, 32, 1),
        (lambda i, block: block * 32 + i, 96, 3),
        (lambda i, block: i % 4 * 8 + i // 4 + 5, 32, 1),
    ],
)
def test_what_iterations_come_to(n, begins, step, blocks):
    x, y, c = (
        RANDOM.standard_normal(n, dtype=np.float32),
        np.zeros(n, np.float32),
        np.zeros((blocks, 32), np.int32),
    )
    tilec.compile(strided(begins, step, blocks=blocks), target="cpu")(x, y, c)
    wanted = np.zeros_like(x)
    for block in range(blocks):
        for i in range(32):
            mine = range(begins(i, block), n, step)
            wanted[list(mine)] = 2 * x[list(mine)]
            assert c[block, i] == len(mine)
    np.testing.assert_array_equal(y, wanted)
