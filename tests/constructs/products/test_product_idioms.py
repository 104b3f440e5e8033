"""Products as authors write them take the roads of sm_90a, with the results of the interpreter."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, elaborated

import tilec.language as T
from tilec.backends.pipeline import lower
from tilec.ir.guards import Guard
from tilec.targets import parse_target

M, N, K, TILE = 192, 128, 256, 64


def operands(*more):
    rng = np.random.default_rng(14)
    shapes = ((M, K), (K, N), *more)
    return [(rng.standard_normal(shape) / 4).astype(np.float16) for shape in shapes]


def launch_of(kernel, inputs, dims=None):
    """The launch behind the choice of roles."""
    made = elaborated(kernel, inputs, dims, {}, {})
    return lower(made, parse_target("sm_90a"), until="assign_roles").launches[0]


def takes(strategy, kernel, inputs, expected, dims=None, rule=""):
    """``kernel`` gets that strategy, a note says by what rule, and all agree on its results."""
    launch = launch_of(kernel, inputs, dims)
    assert launch.strategy is not None, [str(road) for road in launch.roads if road.loss]
    assert launch.strategy.name == strategy
    assert any(rule in note for note in launch.notes)
    agree(kernel, *inputs, dims=dims, expected=expected, targets=("sm_90a",), rtol=2e-2, atol=2e-2)


def wide(*arrays):
    return [array.astype(np.float32) for array in arrays]


# ---- results through a tile of their author ----


def staged(kind):
    """C = relu(A B) through shared memory."""

    @T.prim_func
    def kernel(
        A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float16")
    ):
        with T.Kernel(T.ceildiv(N, TILE), T.ceildiv(M, TILE), threads=128) as (bx, by):
            A_shared, B_shared = (
                T.alloc_shared((TILE, TILE), "float16"),
                T.alloc_shared((TILE, TILE), "float16"),
            )
            C_shared = T.alloc_shared((TILE, TILE), "float16")
            acc, out = T.alloc_fragment((TILE, TILE), "float32"), T.alloc_fragment((TILE, TILE), "float16")
            T.clear(acc)
            for ko in T.Pipelined(K // TILE, num_stages=2):
                T.copy(A[by * TILE, ko * TILE], A_shared)
                T.copy(B[ko * TILE, bx * TILE], B_shared)
                T.gemm(A_shared, B_shared, acc)
            for i, j in T.Parallel(TILE, TILE):
                acc[i, j] = T.max(acc[i, j], 0)
            if kind == "fragment":
                T.copy(acc, out)
                T.copy(out, C_shared)
            elif kind == "elements":
                for i, j in T.Parallel(TILE, TILE):
                    C_shared[i, j] = acc[i, j]
            else:
                T.copy(acc, A_shared if kind == "operand" else C_shared)
            if kind == "branch":
                if by < 2:
                    T.copy(C_shared, C[by * TILE, bx * TILE])
                else:
                    for i, j in T.Parallel(TILE, TILE):
                        C[by * TILE + i, bx * TILE + j] = C_shared[i, j]
            else:
                T.copy(A_shared if kind == "operand" else C_shared, C[by * TILE, bx * TILE])

    return kernel


@pytest.mark.parametrize("kind", ["copies", "elements", "fragment", "operand"])
def test_results_staged_by_their_author(kind):
    a, b = operands()
    expected = np.maximum(np.matmul(*wide(a, b)), 0)
    takes("matmul", staged(kind), [a, b], expected, rule="only passed through")


def transposed(form):
    """C^T = relu(A B) as authors store it."""

    @T.prim_func
    def kernel(
        A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((N, M), "float16")
    ):
        with T.Kernel(T.ceildiv(N, TILE), T.ceildiv(M, TILE), threads=128) as (bx, by):
            A_shared, B_shared = (
                T.alloc_shared((TILE, TILE), "float16"),
                T.alloc_shared((TILE, TILE), "float16"),
            )
            acc = T.alloc_fragment((TILE, TILE), "float32")
            C_shared = T.alloc_shared((TILE, TILE), "float16")
            out = T.alloc_fragment((TILE, TILE), "float16")
            T.clear(acc)
            for ko in T.Pipelined(K // TILE, num_stages=2):
                T.copy(A[by * TILE, ko * TILE], A_shared)
                T.copy(B[ko * TILE, bx * TILE], B_shared)
                T.gemm(A_shared, B_shared, acc)
            if form == "by rows of C":
                for j, i in T.Parallel(TILE, TILE):
                    C[bx * TILE + j, by * TILE + i] = T.max(acc[i, j], 0)
            elif form == "staged":
                for i, j in T.Parallel(TILE, TILE):
                    C_shared[j, i] = T.max(acc[i, j], 0)
                T.copy(C_shared, C[bx * TILE, by * TILE])
            else:
                for i, j in T.Parallel(TILE, TILE):
                    out[j, i] = T.max(acc[i, j], 0)
                T.copy(out, C[bx * TILE, by * TILE])

    return kernel


@pytest.mark.parametrize("form", ["by rows of C", "staged", "fragment"])
def test_results_that_leave_transposed(form):
    a, b = operands()
    expected = np.maximum(np.matmul(*wide(a, b)), 0).T
    takes("matmul", transposed(form), [a, b], expected, rule="goes over its elements")


# ---- where a sum starts ----


def started(kind):
    """C = A B, or plus what C held, or a bias; the last axis has run-time extents where ``kind`` says so."""

    @T.prim_func
    def kernel(
        A: T.Tensor((M, T.dynamic("depth")), "float16"),
        B: T.Tensor((T.dynamic("depth"), N), "float16"),
        bias: T.Tensor((N,), "float16"),
        C: T.Tensor((M, N), "float16"),
    ):
        depth = A.shape[1]
        with T.Kernel(T.ceildiv(N, TILE), T.ceildiv(M, TILE), threads=128) as (bx, by):
            A_shared, B_shared = (
                T.alloc_shared((TILE, TILE), "float16"),
                T.alloc_shared((TILE, TILE), "float16"),
            )
            acc = T.alloc_fragment((TILE, TILE), "float32")
            if kind == "beta":
                T.copy(C[by * TILE, bx * TILE], acc)
            if kind == "bias":
                for i, j in T.Parallel(TILE, TILE):
                    acc[i, j] = bias[bx * TILE + j]
            for ko in T.Pipelined(T.ceildiv(depth, TILE), num_stages=2):
                T.copy(A[by * TILE, ko * TILE], A_shared)
                T.copy(B[ko * TILE, bx * TILE], B_shared)
                if kind == "name":
                    start = ko * TILE
                    T.gemm(A_shared, B_shared, acc, clear_accum=start < TILE)
                elif kind == "branch":
                    if ko == 0:
                        T.clear(acc)
                    T.gemm(A_shared, B_shared, acc)
                else:
                    T.gemm(A_shared, B_shared, acc, clear_accum=(ko == 0) if kind == "clear" else False)
            T.copy(acc, C[by * TILE, bx * TILE])

    return kernel


@pytest.mark.parametrize("kind", ["clear", "name", "branch", "beta", "bias"])
def test_where_a_sum_starts(kind):
    a, b, bias, c = operands((N,), (M, N))
    more = {"bias": bias, "beta": c}.get(kind, 0)
    expected = np.matmul(*wide(a, b)) + np.float32(more)
    rule = "behind its loop" if kind in ("bias", "beta") else "cleared before its loop"
    inputs = [a, b, bias, *([c] if kind == "beta" else [])]
    takes("matmul", started(kind), inputs, expected, dims={"depth": Guard(div=8)}, rule=rule)


# ---- loops that nobody has pipelined ----


def serial(kind):
    """C = A B over a plain loop."""

    @T.prim_func
    def kernel(
        A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float16")
    ):
        with T.Kernel(T.ceildiv(N, TILE), T.ceildiv(M, TILE), threads=128) as (bx, by):
            A_shared, B_shared = (
                T.alloc_shared((TILE, TILE), "float16"),
                T.alloc_shared((TILE, TILE), "float16"),
            )
            acc = T.alloc_fragment((TILE, TILE), "float32")
            T.clear(acc)
            if kind == "serial":
                for ko in T.serial(K // TILE):
                    T.copy(A[by * TILE, ko * TILE], A_shared)
                    T.copy(B[ko * TILE, bx * TILE], B_shared)
                    T.gemm(A_shared, B_shared, acc)
            elif kind == "step":
                for k in T.serial(0, K, TILE):
                    T.copy(A[by * TILE, k], A_shared)
                    T.copy(B[k, bx * TILE], B_shared)
                    T.gemm(A_shared, B_shared, acc)
            else:
                for ko in range(K // TILE):
                    T.copy(A[by * TILE, ko * TILE], A_shared)
                    T.copy(B[ko * TILE, bx * TILE], B_shared)
                    T.gemm(A_shared, B_shared, acc)
            T.copy(acc, C[by * TILE, bx * TILE])

    return kernel


@pytest.mark.parametrize("kind", ["serial", "step", "range"])
def test_a_loop_that_nobody_has_pipelined(kind):
    a, b = operands()
    takes("matmul", serial(kind), [a, b], np.matmul(*wide(a, b)), rule="is pipelined in 4 stages")


# ---- blocks that walk over tiles ----


@T.macro
def product(A, B, C, A_shared, B_shared, acc, by, bx):
    """One tile of C."""
    for ko in T.Pipelined(K // TILE, num_stages=2):
        T.copy(A[by * TILE, ko * TILE], A_shared)
        T.copy(B[ko * TILE, bx * TILE], B_shared)
        T.gemm(A_shared, B_shared, acc, clear_accum=(ko == 0))
    T.copy(acc, C[by * TILE, bx * TILE])


def walking(kind):
    """C = A B by a few blocks; rows and columns come as run-time sizes, as does the grid."""

    @T.prim_func
    def kernel(
        A: T.Tensor((T.dynamic("rows"), K), "float16"),
        B: T.Tensor((K, T.dynamic("columns")), "float16"),
        C: T.Tensor((T.dynamic("rows"), T.dynamic("columns")), "float16"),
        blocks: T.int32,
    ):
        down, across = T.ceildiv(A.shape[0], TILE), T.ceildiv(B.shape[1], TILE)

        with T.Kernel(down if kind == "columns" else blocks, threads=128) as block:
            A_shared, B_shared = (
                T.alloc_shared((TILE, TILE), "float16"),
                T.alloc_shared((TILE, TILE), "float16"),
            )
            acc = T.alloc_fragment((TILE, TILE), "float32")

            if kind == "columns":
                for bx in T.serial(across):
                    product(A, B, C, A_shared, B_shared, acc, block, bx)
            elif kind == "persistent":
                for by, bx in T.Persistent([down, across], blocks, block):
                    product(A, B, C, A_shared, B_shared, acc, by, bx)
            elif kind == "steps":
                for tile in T.serial(block, down * across, blocks):
                    product(A, B, C, A_shared, B_shared, acc, tile // across, tile % across)
            else:
                for wave in range(T.ceildiv(down * across, blocks)):
                    tile = wave * blocks + block
                    first = tile // (2 * across) * 2
                    size = T.min(down - first, 2)
                    if tile < down * across:
                        by, bx = first + tile % (2 * across) % size, tile % (2 * across) // size
                        product(A, B, C, A_shared, B_shared, acc, by, bx)

    return kernel


@pytest.mark.parametrize("kind", ["persistent", "steps", "groups", "columns"])
def test_blocks_that_walk_over_tiles(kind):
    a, b = operands()
    dims = {"rows": Guard(div=8), "columns": Guard(div=8)}
    takes("matmul", walking(kind), [a, b, 4], np.matmul(*wide(a, b)), dims=dims, rule="is a grid of tiles")


def two_sums(columns):
    """Two products of a tile, whose sums leave no room for two blocks on a multiprocessor as they are."""

    @T.prim_func
    def kernel(
        A: T.Tensor((64, 128), "float16"),
        B: T.Tensor((columns, 128), "float16"),
        D: T.Tensor((64, 128), "float16"),
        C: T.Tensor((64, columns), "float32"),
    ):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 32), "float16")
            b = T.alloc_shared((columns, 32), "float16")
            d = T.alloc_shared((64, 32), "float16")
            wide = T.alloc_fragment((64, columns), "float32")
            narrow = T.alloc_fragment((64, 64), "float32")
            most = T.alloc_fragment((64,), "float32")
            T.clear(wide)
            T.clear(narrow)
            for k in T.Pipelined(4, num_stages=2):
                T.copy(A[0, k * 32], a)
                T.copy(B[0, k * 32], b)
                T.copy(D[0, k * 32], d)
                T.gemm(a, b, wide, transpose_B=True)
                T.gemm(a, d, narrow, transpose_B=True)
            T.reduce_max(narrow, most, dim=1)
            for i, j in T.Parallel(64, columns):
                C[i, j] = wide[i, j] - most[i]

    return kernel


def test_products_that_want_more_registers_at_launch_than_two_blocks_have_keep_one():
    a = np.zeros((64, 128), np.float16)
    made = elaborated(two_sums(256), (a, np.zeros((256, 128), np.float16), a), {}, {}, {})
    (launch,) = lower(made, parse_target("sm_90a")).launches
    assert launch.threads == (160, 1, 1)


def test_a_small_product_behind_a_loop_of_products_leaves_it_its_rings():
    """Weights, and what is added to them in a low rank: nothing in the loop wants attention's roles."""

    @T.prim_func
    def kernel(
        X: T.Tensor((M, K), "float16"),
        W: T.Tensor((N, K), "float16"),
        A: T.Tensor((16, K), "float16"),
        B: T.Tensor((N, 16), "float16"),
        Y: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(N // TILE, M // TILE, threads=128) as (bx, by):
            x, w = (T.alloc_shared((TILE, TILE), "float16") for _ in range(2))
            a = T.alloc_shared((16, TILE), "float16")
            b, low = (T.alloc_shared((TILE, 16), "float16") for _ in range(2))
            y = T.alloc_fragment((TILE, TILE), "float32")
            narrow = T.alloc_fragment((TILE, 16), "float32")
            T.clear(y)
            T.clear(narrow)
            for k in T.Pipelined(K // TILE, num_stages=2):
                T.copy(X[by * TILE, k * TILE], x)
                T.copy(W[bx * TILE, k * TILE], w)
                T.copy(A[0, k * TILE], a)
                T.gemm(x, w, y, transpose_B=True)
                T.gemm(x, a, narrow, transpose_B=True)
            T.copy(narrow, low)
            T.copy(B[bx * TILE, 0], b)
            T.gemm(low, b, y, transpose_B=True)
            T.copy(y, Y[by * TILE, bx * TILE])

    rng = np.random.default_rng(3)
    shapes = ((M, K), (N, K), (16, K), (N, 16))
    x, w, a, b = inputs = [(rng.standard_normal(shape) / 8).astype(np.float16) for shape in shapes]
    launch = launch_of(kernel, inputs)
    assert launch.strategy is None
    wide_x, wide_w, wide_a, wide_b = wide(x, w, a, b)
    expected = wide_x @ wide_w.T + wide_x @ wide_a.T @ wide_b.T
    agree(kernel, *inputs, dims={}, expected=expected, targets=("sm_90a",), rtol=2e-2, atol=2e-2)
