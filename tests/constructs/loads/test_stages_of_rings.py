"""Rings on sm_90a: how many stages they have, and how lanes read what comes by them."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, elaborated

import tilec.language as T
from tilec.backends.cuda.emit.entry import lower_kernel
from tilec.backends.pipeline import lower
from tilec.targets import parse_target

ROWS, WIDE, TILE = 128, 64, 64
SM90A = parse_target("sm_90a")


def product(depth, outer=1):
    """C = R + sum over ``outer`` of A B^T by tiles of K, and its row sums; R passes through a fragment."""

    @T.prim_func
    def kernel(
        A: T.Tensor((ROWS, depth), "float16"),
        B: T.Tensor((WIDE, depth), "float16"),
        R: T.Tensor((ROWS, WIDE), "float16"),
        C: T.Tensor((ROWS, WIDE), "float32"),
        total: T.Tensor((ROWS,), "float32"),
    ):
        with T.Kernel(ROWS // TILE, threads=128) as bx:
            a, b = T.alloc_shared((TILE, TILE), "float16"), T.alloc_shared((WIDE, TILE), "float16")
            r, own = T.alloc_shared((TILE, WIDE), "float16"), T.alloc_fragment((TILE, WIDE), "float32")
            acc, sums = T.alloc_fragment((TILE, WIDE), "float32"), T.alloc_fragment((TILE,), "float32")
            T.clear(acc)
            for _ in T.serial(outer):
                for k in T.Pipelined(depth // TILE, num_stages=3):
                    T.copy(A[bx * TILE, k * TILE], a)
                    T.copy(B[0, k * TILE], b)
                    T.gemm(a, b, acc, transpose_B=True)
            T.copy(R[bx * TILE, 0], r)
            T.copy(r, own)
            for i, j in T.Parallel(TILE, WIDE):
                acc[i, j] += own[i, j]
            T.reduce_sum(acc, sums, dim=1)
            T.copy(sums, total[bx * TILE])
            T.copy(acc, C[bx * TILE, 0])

    return kernel


def operands(depth):
    rng = np.random.default_rng(2)
    return [(rng.standard_normal(shape) / 4).astype(np.float16)
            for shape in ((ROWS, depth), (WIDE, depth), (ROWS, WIDE))]  # fmt: skip


def roads(kernel, inputs):
    return [str(road) for road in lower(elaborated(kernel, inputs, None, {}, {}), SM90A).launches[0].roads]


@pytest.mark.parametrize(("trips", "outer", "stages"), [(1, 1, 1), (2, 1, 2), (1, 2, 2), (6, 1, 4)])
def test_no_ring_has_more_stages_than_a_block_fills(trips, outer, stages):
    inputs = operands(trips * TILE)
    said = roads(product(trips * TILE, outer), inputs)
    assert f"ring of {stages} stages" in "".join(said), said
    a, b, r = (each.astype(np.float32) for each in inputs)
    found = outer * (a @ b.T) + r
    agree(product(trips * TILE, outer), *inputs, expected=(found, found.sum(1)), targets=("sm_90a",),
          rtol=2e-2, atol=2e-2)  # fmt: skip


def test_lanes_read_a_tile_that_goes_into_sums_without_conflicts():
    said = roads(product(4 * TILE), operands(4 * TILE))
    assert any("R -> r" in road and "TMA" in road for road in said), said
    assert not any("of a bank" in road for road in said), said


def loaded_twice(depth):
    """C = (2 A) B^T by tiles of K, which come through one raw tile: A's, then B's."""

    @T.prim_func
    def kernel(
        A: T.Tensor((TILE, depth), "float16"),
        B: T.Tensor((WIDE, depth), "float16"),
        C: T.Tensor((TILE, WIDE), "float32"),
    ):
        with T.Kernel(1, threads=128) as _:
            raw, a, b = (T.alloc_shared((TILE, TILE), "float16") for _ in range(3))
            acc = T.alloc_fragment((TILE, WIDE), "float32")
            T.clear(acc)
            for k in T.serial(T.ceildiv(depth, TILE)):
                T.copy(A[0, k * TILE], raw)
                for i, j in T.Parallel(TILE, TILE):
                    a[i, j] = raw[i, j] * T.float16(2)
                T.copy(B[0, k * TILE], raw)
                for i, j in T.Parallel(TILE, TILE):
                    b[i, j] = raw[i, j]
                T.gemm(a, b, acc, transpose_B=True)
            T.copy(acc, C)

    return kernel


def test_a_tile_that_a_trip_fills_twice_takes_two_stages():
    a, b, _ = operands(3 * TILE)
    kernel, inputs = loaded_twice(3 * TILE), (a[:TILE], b)
    said = roads(kernel, inputs)
    assert all(any(f"{name} -> raw" in road and "TMA" in road for road in said) for name in "AB"), said
    found = 2 * inputs[0].astype(np.float32) @ b.astype(np.float32).T
    agree(kernel, *inputs, expected=found, targets=("sm_90a",), rtol=2e-2, atol=2e-2)


def made_across(depth, wide=32):
    """C = (2 A)^T B by tiles of 32 rows; threads double A's."""

    @T.prim_func
    def kernel(
        A: T.Tensor((depth, TILE), "float32"),
        B: T.Tensor((depth, wide), "float32"),
        C: T.Tensor((TILE, wide), "float32"),
    ):
        with T.Kernel(1, threads=128) as _:
            raw, a = (T.alloc_shared((32, TILE), "float32") for _ in range(2))
            b, acc = T.alloc_shared((32, wide), "float32"), T.alloc_fragment((TILE, wide), "float32")
            T.clear(acc)
            for k in T.serial(depth // 32):
                T.copy(A[k * 32, 0], raw)
                T.copy(B[k * 32, 0], b)
                for i, j in T.Parallel(32, TILE):
                    a[i, j] = raw[i, j] * 2
                T.gemm(a, b, acc, transpose_A=True)
            T.copy(acc, C)

    return kernel


def test_lanes_wait_for_a_made_operand_across_k_that_they_load():
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-8, 9, (96, each)).astype(np.float32) for each in (TILE, 32))
    kernel = made_across(96)
    assert any("wgmma" in road for road in roads(kernel, (a, b)))
    agree(kernel, a, b, expected=2 * a.T @ b, targets=("sm_90a",))


def first_block_apart(depth):
    """sum over blocks of K of (Q K^T) K, the first of which is masked and stands in front of the loop."""

    @T.prim_func
    def kernel(
        Q: T.Tensor((TILE, TILE), "float16"),
        K: T.Tensor((depth, TILE), "float16"),
        out: T.Tensor((TILE, TILE), "float32"),
    ):
        with T.Kernel(1, threads=128) as _:
            q, k = T.alloc_shared((TILE, TILE), "float16"), T.alloc_shared((TILE, TILE), "float16")
            s, o = T.alloc_fragment((TILE, TILE), "float32"), T.alloc_fragment((TILE, TILE), "float32")
            p = T.alloc_fragment((TILE, TILE), "float16")
            T.copy(Q, q)
            T.clear(o)
            T.copy(K[0, 0], k)
            T.gemm(q, k, s, transpose_B=True, clear_accum=True)
            for i, j in T.Parallel(TILE, TILE):
                p[i, j] = T.if_then_else(j >= 4, s[i, j], 0)
            T.gemm(p, k, o)
            for t in T.Pipelined(1, depth // TILE, num_stages=2):
                T.copy(K[t * TILE, 0], k)
                T.gemm(q, k, s, transpose_B=True, clear_accum=True)
                T.copy(s, p)
                T.gemm(p, k, o)
            T.copy(o, out)

    return kernel


@pytest.mark.parametrize("blocks", [1, 2, 4])
def test_a_tile_that_is_loaded_in_front_of_a_loop_and_in_it(blocks):
    q, k = (np.random.default_rng(n).integers(-2, 3, (rows, TILE)).astype(np.float16)
            for n, rows in ((1, TILE), (2, blocks * TILE)))  # fmt: skip
    kernel = first_block_apart(blocks * TILE)
    made = lower(elaborated(kernel, (q, k), None, {}, {}), SM90A)
    said = [str(road) for road in lower_kernel(made, SM90A).launches[0].roads]
    assert any("K -> k: TMA" in road for road in said), said
    scores = q.astype(np.float32) @ k.astype(np.float32).T
    scores[:, :4] = 0
    agree(kernel, q, k, expected=scores @ k.astype(np.float32))


def last_block_apart(depth):
    """As `first_block_apart` with the last block behind the loop, in a tile of its own."""

    @T.prim_func
    def kernel(
        Q: T.Tensor((TILE, TILE), "float16"),
        K: T.Tensor((depth, TILE), "float16"),
        out: T.Tensor((TILE, TILE), "float32"),
    ):
        with T.Kernel(1, threads=128) as _:
            q, k, last = (T.alloc_shared((TILE, TILE), "float16") for _ in range(3))
            s, o = T.alloc_fragment((TILE, TILE), "float32"), T.alloc_fragment((TILE, TILE), "float32")
            p = T.alloc_fragment((TILE, TILE), "float16")
            T.copy(Q, q)
            T.clear(o)
            for t in T.Pipelined(depth // TILE - 1, num_stages=2):
                T.copy(K[t * TILE, 0], k)
                T.gemm(q, k, s, transpose_B=True, clear_accum=True)
                T.copy(s, p)
                T.gemm(p, k, o)
            T.copy(K[depth - TILE, 0], last)
            T.gemm(q, last, s, transpose_B=True, clear_accum=True)
            for i, j in T.Parallel(TILE, TILE):
                p[i, j] = T.if_then_else(j >= 4, s[i, j], 0)
            T.gemm(p, last, o)
            T.copy(o, out)

    return kernel


def test_a_tile_that_is_loaded_behind_a_loop():
    q, k = (np.random.default_rng(n).integers(-2, 3, (rows, TILE)).astype(np.float16)
            for n, rows in ((1, TILE), (2, 6 * TILE)))  # fmt: skip
    scores = q.astype(np.float32) @ k.astype(np.float32).T
    scores[:, -TILE : 4 - TILE] = 0
    agree(last_block_apart(6 * TILE), q, k, expected=scores @ k.astype(np.float32))


@pytest.mark.parametrize(("rows", "dtype"), [(64, "uint8"), (128, "int8")])
def test_rings_of_small_stages_leave_room_for_their_barriers(rows, dtype):
    @T.prim_func
    def kernel(
        A: T.Tensor((39, rows + 3), dtype), B: T.Tensor((39, 21), dtype), C: T.Tensor((rows + 3, 21), "int32")
    ):
        with T.Kernel(2, 2, threads=256) as (bx, by):
            a, b = T.alloc_shared((32, rows), dtype), T.alloc_shared((32, 16), dtype)
            acc = T.alloc_fragment((rows, 16), "int32")
            T.clear(acc)
            for k in T.Pipelined(2, num_stages=3):
                T.copy(A[k * 32, by * rows], a)
                T.copy(B[k * 32, bx * 16], b)
                T.gemm(a, b, acc, transpose_A=True)
            T.copy(acc, C[by * rows, bx * 16])

    rng = np.random.default_rng(0)
    a, b = (rng.integers(0, 5, (39, columns)).astype(dtype) for columns in (rows + 3, 21))
    agree(kernel, a, b, expected=a.T.astype(np.int32) @ b.astype(np.int32), targets=("sm_90a", "sm_100a"))


@pytest.mark.parametrize("shape", [(16,), (1, 20), (3, 8), (36,)])
def test_tiles_of_any_length_of_whole_vectors_come_by_boxes(shape):
    zeros = (0,) * (len(shape) - 1)

    @T.prim_func
    def kernel(
        A: T.Tensor((64, 256), "float16"), B: T.Tensor((64, 256), "float16"),
        S: T.Tensor((4, *shape), "float32"), C: T.Tensor((64, 64), "float32"),
    ):  # fmt: skip
        with T.Kernel(1, threads=128):
            a, b = T.alloc_shared((64, 64), "float16"), T.alloc_shared((64, 64), "float16")
            s, acc = T.alloc_shared(shape, "float32"), T.alloc_fragment((64, 64), "float32")
            T.clear(acc)
            for k in T.Pipelined(4, num_stages=3):
                T.copy(A[0, k * 64], a)
                T.copy(B[0, k * 64], b)
                T.copy(S[(k, *zeros, 0)], s)
                T.gemm(a, b, acc, transpose_B=True)
                for i, j in T.Parallel(64, 64):
                    acc[i, j] += s[(*zeros, j % shape[-1])] * s[tuple(i % size for size in shape)]
            T.copy(acc, C)

    rng = np.random.default_rng(3)
    inputs = [rng.integers(-3, 4, size).astype(np.float16) for size in ((64, 256), (64, 256))]
    inputs.append(rng.integers(-3, 4, (4, *shape)).astype(np.float32))
    agree(kernel, *inputs, targets=("sm_90a",))
    assert any("S -> s: TMA" in road for road in roads(kernel, inputs))


def attention(width, rows, threads, stages):
    """exp2(Q K^T / 64) V of 256 queries and keys by tiles of 64 keys."""

    @T.prim_func
    def kernel(
        Q: T.Tensor((256, width), "float16"),
        K: T.Tensor((256, width), "float16"),
        V: T.Tensor((256, width), "float16"),
        Y: T.Tensor((256, width), "float16"),
    ):
        with T.Kernel(256 // rows, threads=threads) as bx:
            q, k = T.alloc_shared((rows, width), "float16"), T.alloc_shared((64, width), "float16")
            v, p = T.alloc_shared((64, width), "float16"), T.alloc_fragment((rows, 64), "float16")
            s, y = T.alloc_fragment((rows, 64), "float32"), T.alloc_fragment((rows, width), "float32")
            T.copy(Q[bx * rows, 0], q)
            T.clear(y)
            for n in T.Pipelined(4, num_stages=stages):
                T.copy(K[n * 64, 0], k)
                T.copy(V[n * 64, 0], v)
                T.gemm(q, k, s, transpose_B=True, clear_accum=True, policy=T.GemmWarpPolicy.FullRow)
                for i, j in T.Parallel(rows, 64):
                    p[i, j] = T.exp2(s[i, j] / 64)
                T.gemm(p, v, y, policy=T.GemmWarpPolicy.FullRow)
            T.copy(y, Y[bx * rows, 0])

    return kernel


@pytest.mark.parametrize(
    ("width", "rows", "threads", "stages", "said"),
    [
        (64, 64, 128, 1, "q 2, k 2, v 2"),
        (256, 128, 256, 1, "q 1, k 2, v 2"),
        (128, 64, 128, 3, "q 2, k 2, v 2"),
        (192, 64, 128, 2, "q 2, k 1, v 1"),
        (128, 128, 256, 3, "q 2, k 3, v 3"),
    ],
)
def test_attention_has_the_stages_that_pay(width, rows, threads, stages, said):
    """Two of keys and values whatever the author asks for, where two blocks share a multiprocessor as many
    as leave them room."""
    inputs = [np.zeros((256, width), np.float16)] * 3
    kernel = elaborated(attention(width, rows, threads, stages), inputs, None, {}, {})
    (launch,) = lower_kernel(lower(kernel, SM90A), SM90A).launches
    assert f"TMA rings of {said} stages" in " ".join(launch.notes)
