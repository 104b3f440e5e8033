"""Products of what a trip makes of another one's sums, without a policy of the author's."""

from __future__ import annotations

import numpy as np
from agree import agree, roads

import tilec.language as T
from tilec.ir.guards import Guard

ROWS, KEYS, HEAD = 64, 128, 64


def retention(tile):
    """O = (Q K^T * decay) V, the keys by tiles."""

    @T.prim_func
    def kernel(
        Q: T.Tensor((ROWS, HEAD), "float16"),
        K: T.Tensor((KEYS, HEAD), "float16"),
        V: T.Tensor((KEYS, HEAD), "float16"),
        Out: T.Tensor((ROWS, HEAD), "float32"),
    ):
        with T.Kernel(1, threads=128):
            q = T.alloc_shared((ROWS, HEAD), "float16")
            k, v = T.alloc_shared((tile, HEAD), "float16"), T.alloc_shared((tile, HEAD), "float16")
            s, total = T.alloc_fragment((ROWS, tile), "float32"), T.alloc_fragment((ROWS,), "float32")
            p, o = T.alloc_fragment((ROWS, tile), "float16"), T.alloc_fragment((ROWS, HEAD), "float32")
            T.copy(Q, q)
            T.clear(o)
            for trip in T.Pipelined(KEYS // tile, num_stages=2):
                T.copy(K[trip * tile, 0], k)
                T.copy(V[trip * tile, 0], v)
                T.gemm(q, k, s, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(ROWS, tile):
                    s[i, j] = T.if_then_else(i + KEYS > trip * tile + j, s[i, j] / (1 + j), 0)
                T.reduce_abssum(s, total, dim=1)
                for i, j in T.Parallel(ROWS, tile):
                    p[i, j] = s[i, j] / (1 + total[i])
                T.gemm(p, v, o)
            T.copy(o, Out)

    return kernel


def test_sums_that_become_an_operand_stay_in_registers():
    rng = np.random.default_rng(3)
    q, k, v = ((rng.standard_normal((rows, HEAD)) / 4).astype(np.float16) for rows in (ROWS, KEYS, KEYS))
    agree(retention(64), q, k, v)
    found = roads(retention(64), q, k, v)
    assert not [road for road in found if "shared" in road.statement + road.instruction]


def few_rows():
    """O = exp(Q K^T) V of 16 rows, whose columns warps share."""

    @T.prim_func
    def kernel(
        Q: T.Tensor((16, HEAD), "float16"),
        K: T.Tensor((KEYS, HEAD), "float16"),
        V: T.Tensor((KEYS, HEAD), "float16"),
        Out: T.Tensor((16, HEAD), "float32"),
    ):
        with T.Kernel(1, threads=128):
            q = T.alloc_shared((16, HEAD), "float16")
            k, v = T.alloc_shared((KEYS, HEAD), "float16"), T.alloc_shared((KEYS, HEAD), "float16")
            s, p = T.alloc_fragment((16, KEYS), "float32"), T.alloc_fragment((16, KEYS), "float16")
            o = T.alloc_fragment((16, HEAD), "float32")
            T.copy(Q, q)
            T.copy(K, k)
            T.copy(V, v)
            T.gemm(q, k, s, transpose_B=True, clear_accum=True)
            for i, j in T.Parallel(16, KEYS):
                s[i, j] = T.exp(s[i, j])
            T.copy(s, p)
            T.gemm(p, v, o, clear_accum=True)
            T.copy(o, Out)

    return kernel


def test_sums_that_go_to_other_warps_go_in_vectors():
    rng = np.random.default_rng(4)
    q, k, v = ((rng.standard_normal((rows, HEAD)) / 4).astype(np.float16) for rows in (16, KEYS, KEYS))
    agree(few_rows(), q, k, v)
    found = [road for road in roads(few_rows(), q, k, v) if "s_shared" in road.statement]
    assert [road.kind for road in found] == ["vectors", "vectors"]


def layers():
    """Y = relu(X A^T) B^T of 32 rows, which wgmma takes as columns."""

    @T.prim_func
    def kernel(
        X: T.Tensor((32, 64), "float16"),
        A: T.Tensor((256, 64), "float16"),
        B: T.Tensor((64, 256), "float16"),
        Y: T.Tensor((32, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            x = T.alloc_shared((32, 64), "float16")
            a, b = T.alloc_shared((64, 64), "float16"), T.alloc_shared((64, 64), "float16")
            h, low = T.alloc_fragment((32, 64), "float32"), T.alloc_fragment((32, 64), "float16")
            y = T.alloc_fragment((32, 64), "float32")
            T.clear(y)
            T.copy(X, x)
            for k in T.Pipelined(4, num_stages=3):
                T.copy(A[k * 64, 0], a)
                T.copy(B[0, k * 64], b)
                T.gemm(x, a, h, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(32, 64):
                    low[i, j] = T.max(h[i, j], 0)
                T.gemm(low, b, y, transpose_B=True)
            T.copy(y, Y)

    return kernel


def test_a_tile_of_a_trip_that_products_read_beyond_its_end():
    """The last product stays under way over the end of its trip, with the tile that its operand waits in."""
    rng = np.random.default_rng(5)
    x, a, b = (
        (rng.standard_normal(shape) / 4).astype(np.float16) for shape in ((32, 64), (256, 64), (64, 256))
    )
    agree(layers(), x, a, b)
    products = [
        road.instruction for road in roads(layers(), x, a, b, target="sm_90a") if "->" in road.statement
    ]
    assert sum(instruction.startswith("wgmma") for instruction in products) == 2


def few_queries(heads, keys):
    """Of which a fragment holds all."""

    @T.prim_func
    def main(
        Q: T.Tensor((heads, 32, 64), "float16"),
        K: T.Tensor((heads, keys, 64), "float16"),
        V: T.Tensor((heads, keys, 64), "float16"),
        Out: T.Tensor((heads, 32, 64), "float32"),
    ):
        with T.Kernel(heads, threads=128) as b:
            q = T.alloc_fragment((32, 64), "float16")
            k, v = T.alloc_shared((64, 64), "float16"), T.alloc_shared((64, 64), "float16")
            s, p = T.alloc_fragment((32, 64), "float32"), T.alloc_shared((32, 64), "float16")
            o = T.alloc_fragment((32, 64), "float32")
            T.copy(Q[b, 0, 0], q)
            T.clear(o)
            for t in T.Pipelined(T.ceildiv(keys, 64), num_stages=2):
                T.copy(K[b, t * 64, 0], k)
                T.clear(s)
                T.gemm(q, k, s, transpose_B=True)
                for i, j in T.Parallel(32, 64):
                    s[i, j] = T.max(s[i, j], 0.0)
                T.copy(s, p)
                T.copy(V[b, t * 64, 0], v)
                T.gemm(p, v, o)
            T.copy(o, Out[b, 0, 0])

    return main


def test_a_fragment_that_trips_pass_on_goes_in_front_with_its_tile():
    rng = np.random.default_rng(0)
    q, k, v = (rng.integers(-2, 3, (1, n, 64)).astype(np.float32) for n in (32, 100, 100))
    agree(
        few_queries,
        q,
        k,
        v,
        dims={"heads": Guard(), "keys": Guard()},
        expected=np.maximum(q @ k.transpose(0, 2, 1), 0) @ v,
        targets=("sm_90a",),
    )
