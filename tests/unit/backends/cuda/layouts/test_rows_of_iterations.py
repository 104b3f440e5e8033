"""Fragments of which an iteration has a row to itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from agree import agree, elaborated

import tilec.language as T
from tilec.backends.pipeline import lower
from tilec.ir.nodes import Alloc, Bind, Launch, walk
from tilec.targets import parse_target


def shared_tiles(main: Any, *arguments: np.ndarray) -> int:
    """How many tiles of shared memory a kernel's launch has."""
    kernel = lower(elaborated(main, arguments, None, {}, {}), parse_target("sm_80"))
    (launch,) = [stmt for stmt in kernel.body if isinstance(stmt, Launch)]
    return sum(isinstance(stmt, Alloc) and stmt.buffer.scope() == "shared.dyn" for stmt in walk(launch.body))


def moments(rows: int, threads: int):
    """Sums, sums of squares and largest elements of rows, one iteration each."""

    @T.prim_func
    def main(A: T.Tensor((rows, 16), "float32"), C: T.Tensor((rows, 3), "float32")):
        with T.Kernel(1, threads=threads):
            found = T.alloc_fragment((rows, 3), "float32")
            T.fill(found, -1000)
            for i in T.Parallel(rows):
                found[i, 0] = 0
                found[i, 1] = 0
            for k in T.serial(2):
                for i in T.Parallel(rows):
                    for j in T.serial(8):
                        found[i, 0] += A[i, k * 8 + j]
                        found[i, 1] += A[i, k * 8 + j] * A[i, k * 8 + j]
                        found[i, 2] = T.max(found[i, 2], A[i, k * 8 + j])
            T.copy(found, C)

    return main


@pytest.mark.parametrize(("rows", "threads"), [(64, 64), (32, 64), (256, 64), (40, 32)])
def test_rows_lie_in_the_registers_of_their_iterations(rows, threads):
    a = np.random.default_rng(0).integers(-9, 10, (rows, 16)).astype(np.float32)
    wanted = np.stack([a.sum(1), (a * a).sum(1), a.max(1)], 1)
    agree(moments(rows, threads), a, expected=wanted)
    assert shared_tiles(moments(rows, threads), a) == 0


def test_columns_that_trips_choose_pass_through_shared_memory():
    @T.prim_func
    def main(
        A: T.Tensor((32, 64), "float32"), C: T.Tensor((32, 4), "float32"), D: T.Tensor((32,), "float32")
    ):
        with T.Kernel(1, threads=64):
            x, largest = T.alloc_fragment((32, 64), "float32"), T.alloc_fragment((32,), "float32")
            found, total = T.alloc_fragment((32, 4), "float32"), T.alloc_fragment((32,), "float32")
            T.copy(A, x)
            T.clear(total)
            for k in T.serial(4):
                T.reduce_max(x, largest, dim=1)
                for i in T.Parallel(32):
                    found[i, k] = largest[i] * 2
                    total[i] += found[i, k]
                for i, j in T.Parallel(32, 64):
                    x[i, j] = T.if_then_else(x[i, j] == largest[i], -1000.0, x[i, j])
            T.copy(found, C)
            T.copy(total, D)

    a = np.stack([np.random.default_rng(i).permutation(64) for i in range(32)]).astype(np.float32)
    largest = -np.sort(-a, 1)[:, :4] * 2
    agree(main, a, expected=[largest, largest.sum(1)])
    kernel = lower(elaborated(main, (a,), None, {}, {}), parse_target("sm_80"))
    names = [stmt.var.name for stmt in walk(kernel.launches[0].body) if isinstance(stmt, Bind)]
    assert "found_stored" in names


def window(columns: int, threads: int):
    """Rows of the last four steps, moved on by trips, of which steps add to one that data chooses."""

    @T.prim_func
    def main(
        X: T.Tensor((6, columns), "float32"),
        At: T.Tensor((6, columns), "int32"),
        Y: T.Tensor((6, columns), "float32"),
        Z: T.Tensor((4, columns), "float32"),
    ):
        with T.Kernel(1, threads=threads):
            last = T.alloc_fragment((4, columns), "float32")
            for j in T.Parallel(columns):
                for k in T.serial(4):
                    last[k, j] = 0
                last[0, j] = 1
            for step in T.serial(6):
                for k in T.serial(3):
                    for j in T.Parallel(columns):
                        last[k, j] = last[k + 1, j]
                for j in T.Parallel(columns):
                    last[3, j] = X[step, j]
                for j in T.Parallel(columns):
                    last[At[step, j], j] += 1
                for j in T.Parallel(columns):
                    Y[step, j] = last[step % 4, j]
            T.copy(last, Z)

    return main


@pytest.mark.parametrize(("columns", "threads"), [(45, 64), (128, 32)])
def test_places_that_trips_and_data_choose_stay_in_registers(columns, threads):
    rng = np.random.default_rng(0)
    x = rng.integers(-9, 10, (6, columns)).astype(np.float32)
    at = rng.integers(-1, 6, (6, columns)).astype(np.int32)
    last, found = np.zeros((4, columns), np.float32), []
    last[0] = 1
    for step in range(6):
        last = np.concatenate([last[1:], x[step : step + 1]])
        last += at[step] == np.arange(4)[:, None]
        found.append(last[step % 4])
    main = window(columns, threads)
    agree(main, x, at, expected=[np.stack(found), last])
    assert shared_tiles(main, x, at) == 0


def mixed(streams: int, columns: int, threads: int, written_out: bool = False):
    """Streams mixed by a matrix, and the sum of all of them."""

    @T.prim_func
    def main(
        X: T.Tensor((streams, columns), "float16"),
        mix: T.Tensor((streams, streams), "float32"),
        Y: T.Tensor((streams, columns), "float16"),
        total: T.Tensor((columns,), "float32"),
    ):
        with T.Kernel(1, threads=threads):
            x, y = (
                T.alloc_fragment((streams, columns), "float32"),
                T.alloc_fragment((streams, columns), "float32"),
            )
            held, m = T.alloc_fragment((columns,), "float32"), T.alloc_fragment((streams, streams), "float32")
            T.copy(X, x)
            T.copy(mix, m)
            for i, j in T.Parallel(streams, columns):
                y[i, j] = 0
                if written_out:
                    y[i, j] = m[i, 0] * x[0, j] + m[i, 1] * x[1, j]
                else:
                    for k in T.serial(streams):
                        y[i, j] += m[i, k] * x[k, j]
            T.copy(y, Y)
            T.clear(held)
            for k in T.serial(streams):
                for j in T.Parallel(columns):
                    held[j] += x[k, j]
            T.copy(held, total)

    return main


@pytest.mark.parametrize(
    ("streams", "columns", "threads", "written_out", "tiles"),
    [
        (4, 256, 64, False, 1),
        (2, 128, 128, True, 1),
        (3, 130, 64, False, 1),
        (4, 32, 64, False, 2),  # too few columns for all threads
    ],
)
def test_rows_that_all_iterations_of_a_column_read_lie_in_its_registers(
    streams, columns, threads, written_out, tiles
):
    rng = np.random.default_rng(0)
    x = rng.integers(-9, 10, (streams, columns)).astype(np.float16)
    mix = rng.integers(-3, 4, (streams, streams)).astype(np.float32)
    main = mixed(streams, columns, threads, written_out)
    agree(main, x, mix, expected=[(mix @ x).astype(np.float16), x.astype(np.float32).sum(0)])
    assert shared_tiles(main, x, mix) == tiles


def test_rows_of_a_product_stay_where_it_leaves_them():
    @T.prim_func
    def main(A: T.Tensor((64, 32), "float16"), C: T.Tensor((64, 8), "float32")):
        with T.Kernel(1, threads=128):
            a, c = T.alloc_shared((64, 32), "float16"), T.alloc_fragment((64, 8), "float32")
            T.copy(A, a)
            T.gemm(a, a[0:8, :], c, transpose_B=True, clear_accum=True)
            for i in T.Parallel(64):
                c[i, 0] = c[i, 0] + c[i, 7]
            T.copy(c, C)

    a = np.random.default_rng(0).integers(-3, 4, (64, 32)).astype(np.float16)
    wanted = a.astype(np.float32) @ a[:8].astype(np.float32).T
    wanted[:, 0] += wanted[:, 7]
    agree(main, a, expected=wanted)
