"""Pairs of blocks on an emulated sm_90a where a table, read at a block's place, gives operands or trips: what
neighbours bring for each other, and that the second one of a pair reads nothing outside of the grid."""

from __future__ import annotations

import numpy as np
import pytest

import tilec.language as T
from tilec.backends.cuda.matmul.nodes import MatmulRoles
from tilec.backends.cuda.warp_roles.strategy import roles_of
from tilec.backends.pipeline import lower
from tilec.emulate import EmulatedKernel
from tilec.ir.guards import Guard
from tilec.ir.nodes import Kernel
from tilec.language.frontend.elaborate import elaborate
from tilec.targets import parse_target

SM90A = parse_target("sm_90a")
TILE, TILES = 64, 3


def product(M, N, K, R, of, axis):
    """C = A @ W.T in tiles; the number from the table counts tiles of A, of W, or the trips (``of``)."""

    @T.prim_func
    def main(
        table: T.Tensor((R,), "int32"),
        A: T.Tensor((M, K), "float16"),
        W: T.Tensor((N, K), "float16"),
        C: T.Tensor((M, N), "float16"),
    ):
        with T.Kernel(T.ceildiv(N, TILE), T.ceildiv(M, TILE), threads=128) as (bx, by):
            a, w = T.alloc_shared((TILE, TILE), "float16"), T.alloc_shared((TILE, TILE), "float16")
            acc = T.alloc_fragment((TILE, TILE), "float32")
            number = table[(bx, by)[axis]]
            T.clear(acc)
            for k in T.Pipelined(number if of == "K" else T.ceildiv(K, TILE), num_stages=2):
                row = number * TILE if of == "A" else T.let(by * TILE)
                T.copy(A[row, k * TILE], a)
                T.copy(W[(number if of == "W" else bx) * TILE, k * TILE], w)
                T.gemm(a, w, acc, transpose_B=True)
            T.copy(acc, C[by * TILE, bx * TILE])

    return main


def kernel_of(of: str, axis: int, dims: dict[str, Guard] | None = None, **config: object) -> Kernel:
    dims = {**dict.fromkeys("MR", Guard()), **dict.fromkeys("NK", Guard(div=8)), **(dims or {})}
    return elaborate(product, name="paired", dims=dims, args={"of": of, "axis": axis}, config=config)


def wanted(table: np.ndarray, a: np.ndarray, w: np.ndarray, of: str, axis: int) -> np.ndarray:
    """The product of small integers, tile by tile."""
    c = np.zeros((len(a), len(w)), np.float16)
    for x, y in np.ndindex(TILES, TILES):
        number = int(table[(x, y)[axis]])
        i, j = (number if of == name else place for name, place in (("A", y), ("W", x)))
        depth = TILE * number if of == "K" else a.shape[1]
        rows, columns = (slice(TILE * each, TILE * (each + 1)) for each in (i, j))
        tile = a[rows, :depth].astype(np.float32) @ w[columns, :depth].astype(np.float32).T
        c[TILE * y : TILE * (y + 1), TILE * x : TILE * (x + 1)] = tile
    return c


@pytest.mark.parametrize(
    ("of", "axis", "cluster", "order"),
    [
        ("A", 1, [1, 2], (1, True)),
        ("A", 1, [2, 1], (0, False)),
        ("A", 0, [2, 1], (None, False)),
        ("W", 1, [1, 2], (None, False)),
        ("W", 1, [2, 1], (0, False)),
        ("W", 0, [1, 2], (1, False)),
        ("K", 1, [1, 2], (None, False)),
        ("K", 1, [2, 1], (0, False)),
        ("K", 1, None, (None, False)),
    ],
)
def test_what_neighbours_bring_for_each_other(of, axis, cluster, order):
    kernel = kernel_of(of, axis, **({} if cluster is None else {"cluster": cluster}))
    found = roles_of(lower(kernel, SM90A).launches[0], MatmulRoles).order
    assert (found.pair, found.crosses) == order
    rng = np.random.default_rng(3)
    a, w = (rng.integers(-2, 3, (TILE * TILES, 136)).astype(np.float16) for _ in range(2))
    table = np.asarray([2, 0, 1] if of != "K" else [1, 3, 2], np.int32)
    c = np.full((len(a), len(w)), np.nan, np.float16)
    EmulatedKernel(kernel, SM90A)([table, a, w, c], {"M": len(a), "N": len(w), "K": 136, "R": TILES})
    np.testing.assert_array_equal(c, wanted(table, a, w, of, axis))


def test_unaligned_rows_pair_where_an_operand_is_the_same():
    dims = {"M": Guard(eq=1000), "N": Guard(eq=1000), "K": Guard(eq=1000)}
    orders = [
        roles_of(lower(kernel_of(*case, dims=dims), SM90A).launches[0], MatmulRoles).order
        for case in (("W", 1), ("A", 0), ("K", 1), ("K", 0))
    ]
    assert [order.pair for order in orders] == [0, 1, 0, 1]
