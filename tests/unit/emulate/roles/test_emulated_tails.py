"""Tiles that end beyond their tensor: which loads bring the rows inside alone, which tiles begin earlier, and
that the others count."""

from __future__ import annotations

import pytest
from emulated import KERNELS, SM90A, Beside, kernel_of

import tilec.language as T
from tilec.backends.cuda.matmul.nodes import MatmulRoles
from tilec.backends.cuda.packed_weights.nodes import PackedProduct
from tilec.backends.cuda.warp_roles.nodes import TmaLoad
from tilec.backends.cuda.warp_roles.strategy import roles_of
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.ir.guards import Guard
from tilec.ir.nodes import Bind, Kernel, walk
from tilec.language.frontend.elaborate import elaborate, load_entry
from tilec.trials.oracle import Author

SMALL = {"bM": 64, "bN": 64, "bK": 64, "num_stages": 2, "threads": 128}
DIMS = {"M": Guard(min=1, max=128), "N": Guard(div=8), "K": Guard(div=8)}


def gemm(entry: str = "matmul", dims: dict[str, Guard] | None = None, **config: object) -> Kernel:
    return kernel_of(f"gemm.py:{entry}", dims or DIMS, {"dtype": "float16"}, **{**SMALL, **config})


def cut(kernel: Kernel) -> list[str]:
    """The tensors whose last tiles have boxes of their own."""
    roles = roles_of(lower(kernel, SM90A).launches[0], MatmulRoles)
    loads = [stmt for stmt in walk((roles,)) if isinstance(stmt, TmaLoad)]
    return [str(load.map.buffer.name) for load in loads if load.tail is not None]


def longer(M, N, K, L, dtype="float16"):
    """C has rows of its own behind those of A: they are zeros."""

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), W: T.Tensor((N, K), dtype), C: T.Tensor((L, N), dtype)):
        with T.Kernel(T.ceildiv(N, 64), T.ceildiv(L, 64), threads=128) as (bx, by):
            a, w = T.alloc_shared((64, 64), dtype), T.alloc_shared((64, 64), dtype)
            acc = T.alloc_fragment((64, 64), "float32")
            T.clear(acc)
            for k in T.Pipelined(T.ceildiv(K, 64), num_stages=2):
                T.copy(A[by * 64, k * 64], a)
                T.copy(W[bx * 64, k * 64], w)
                T.gemm(a, w, acc, transpose_B=True)
            T.copy(acc, C[by * 64, bx * 64])

    return main


def test_rows_that_no_element_is_stored_of_are_left_out():
    assert cut(gemm()) == ["A"]
    assert cut(gemm("linear")) == ["A"], "W may have many tiles"
    assert cut(gemm("linear", dims={**DIMS, "N": Guard(div=8, max=128)})) == ["A", "W"]
    assert cut(gemm(bM=64, bN=128, swap=True)) == ["A"]


def test_pairs_bring_halves_of_what_is_left():
    assert cut(gemm("linear", cluster=[2, 1])) == ["A"], "shared"
    assert cut(gemm("linear", cluster=[1, 2])) == ["A"], "each block's own"
    maps = to_tir(lower(gemm("linear", cluster=[2, 1]), SM90A), SM90A).launches[0].tensor_maps
    assert [(found.box[1], found.rest) for found in maps[:2]] == [(32, 0), (32, 64)]


def test_whole_tiles_and_many_tiles_of_a_model_have_one_box():
    assert cut(gemm(dims={**DIMS, "M": Guard(div=64, max=128)})) == []
    assert cut(gemm(dims={**DIMS, "M": Guard(div=8)})) == []
    assert cut(gemm(dims=dict.fromkeys("MNK", Guard(eq=5000)), bM=128, bN=256, threads=256)) == []


@pytest.mark.parametrize("rows", [17, 64])
def test_the_only_tile_has_one_map(rows):
    kernel = gemm("linear", dims={**DIMS, "M": Guard(min=1, max=64)})
    assert cut(kernel) == ["A"]
    assert [found.rest for found in to_tir(lower(kernel, SM90A), SM90A).launches[0].tensor_maps] == [
        64,
        0,
        0,
    ]
    assert Beside(kernel, SM90A).run({"M": rows, "N": 72, "K": 136}) == []


def test_rows_of_the_result_behind_those_of_an_operand_are_zeros():
    dims = {**DIMS, "N": Guard(div=8, max=128), "L": Guard()}
    kernel = elaborate(longer, name="longer", dims=dims, args={}, config={})
    assert cut(kernel) == ["W"]
    assert Beside(kernel, SM90A).run({"M": 40, "N": 72, "K": 72, "L": 100}) == []


@pytest.mark.parametrize(
    ("kernel", "dims"),
    [
        (gemm("linear", dims={**DIMS, "N": Guard(div=8, max=128)}), {"M": 40, "N": 72, "K": 136}),
        (
            gemm("linear", dims={**DIMS, "M": Guard(min=1, max=64), "N": Guard(div=8, max=128)}),
            {"M": 40, "N": 128, "K": 136},
        ),
        (gemm("linear", num_stages=3), {"M": 65, "N": 64, "K": 200}),
        (gemm("linear", dims={**DIMS, "M": Guard()}), {"M": 193, "N": 72, "K": 136}),
        (gemm("linear", dims={**DIMS, "M": Guard()}, cluster=[2, 1]), {"M": 81, "N": 136, "K": 136}),
        (gemm("linear", dims={**DIMS, "M": Guard()}, cluster=[1, 2]), {"M": 129, "N": 72, "K": 136}),
        (
            gemm("linear", dims={**DIMS, "M": Guard()}, bM=40, swap=True, cluster=[1, 2]),
            {"M": 73, "N": 72, "K": 72},
        ),
        (
            gemm("linear", dims={**DIMS, "M": Guard(min=1, max=64)}, cluster=[2, 1]),
            {"M": 17, "N": 136, "K": 72},
        ),
        (
            gemm("linear", dims={**DIMS, "N": Guard(div=8, max=64)}, cluster=[1, 2]),
            {"M": 40, "N": 24, "K": 72},
        ),
        (
            gemm(
                dims={**DIMS, "M": Guard(min=1, max=32)},
                bM=16,
                swap=True,
                split_k=2,
                pdl=True,
                constant=["B"],
            ),
            {"M": 17, "N": 72, "K": 264},
        ),
    ],
    ids=(
        "rows and columns",
        "only rows beside whole columns",
        "one row of the second tile",
        "any number of rows",
        "a pair that shares rows",
        "pairs along rows, the last across",
        "padded tiles of pairs",
        "an only tile of rows beside a block outside",
        "an only tile of columns beside a block outside",
        "parts, loads ahead",
    ),
)
def test_products_of_what_is_left(kernel, dims):
    assert Beside(kernel, SM90A).run(dims) == []


def scaled(rows: Guard, **config: object) -> Kernel:
    dims = {"M": rows, "N": Guard(div=16), "K": Guard(div=16)}
    tiles = {"bM": 128, "bN": 128, "num_stages": 2, "threads": 256}
    return kernel_of("fp8.py:linear_fp8_blocks", dims, {}, **{**tiles, **config})


def moved(kernel: Kernel) -> list[str]:
    """Where tiles begin whose last one ends with its tensor."""
    consumer = roles_of(lower(kernel, SM90A).launches[0], MatmulRoles).consumer
    names = [str(stmt.var.name) for stmt in consumer if isinstance(stmt, Bind)]
    return [name for name in names if name.endswith("_start")]


def test_tiles_of_scaled_sums_begin_earlier_where_rows_fill_one():
    assert moved(scaled(Guard(min=129))) == ["by_start"], "columns have scales by block"
    assert moved(scaled(Guard(min=128, div=128))) == [], "tiles are whole"
    assert moved(scaled(Guard())) == [], "factors of rows would be tested"
    assert moved(gemm(dims={**DIMS, "M": Guard(min=64)})) == [], "sums are not scaled"


@pytest.mark.parametrize("rows", [131, 257])
@pytest.mark.parametrize("config", [{}, {"cluster": [2, 1, 1]}], ids=("alone", "pairs"))
def test_scaled_sums_of_tiles_that_begin_earlier(rows, config):
    author = Author(
        *(load_entry(f"fp8.py:linear_fp8_blocks_{name}", KERNELS) for name in ("reference", "inputs"))
    )
    kernel = scaled(Guard(min=129), **config)
    assert Beside(kernel, SM90A, author).run({"M": rows, "N": 144, "K": 272}) == []


def packed(most: int, columns: Guard | None = None, **config: object) -> Kernel:
    dims = {"M": Guard(min=1, max=most), "N": columns or Guard(div=8), "K": Guard(div=128)}
    tiles = {"bM": 16, "bN": 64, "bK": 128, "num_stages": 2, "threads": 128}
    return kernel_of("quantised_packed.py:linear_packed", dims, {"bits": 4}, **{**tiles, **config})


@pytest.mark.parametrize("tokens", [3, 19])
def test_packed_weights_of_what_is_left(tokens):
    kernel = packed(32)
    product = roles_of(lower(kernel, SM90A).launches[0], PackedProduct)
    assert [load.tail is not None for load in product.loads] == [False, True, False]
    assert Beside(kernel, SM90A).run({"M": tokens, "N": 72, "K": 256}) == []


@pytest.mark.parametrize("most", [16, 32])
def test_pairs_that_share_an_only_tile_beside_packed_weights_bring_all_of_it(most):
    assert Beside(packed(most, cluster=[2, 1]), SM90A).run({"M": 3, "N": 72, "K": 256}) == []


def test_packed_weights_of_pinned_columns_that_end_within_a_tile():
    kernel = packed(32, Guard(eq=136), bN=128)
    assert Beside(kernel, SM90A).run({"M": 3, "N": 136, "K": 256}) == []


def first_rows(M, N, kept=16, bM=64, threads=128):
    """Of each tile's rows the first ones are stored, tightly."""

    @T.prim_func
    def main(
        A: T.Tensor((M, 128), "float16"),
        W: T.Tensor((N, 128), "float16"),
        C: T.Tensor((T.ceildiv(M, bM) * kept, N), "float16"),
    ):
        with T.Kernel(T.ceildiv(N, 64), T.ceildiv(M, bM), threads=threads) as (bx, by):
            a, w = T.alloc_shared((bM, 64), "float16"), T.alloc_shared((64, 64), "float16")
            acc = T.alloc_fragment((bM, 64), "float32")
            T.clear(acc)
            for k in T.Pipelined(2, num_stages=2):
                T.copy(A[by * bM, k * 64], a)
                T.copy(W[bx * 64, k * 64], w)
                T.gemm(a, w, acc, transpose_B=True)
            for i, j in T.Parallel(bM, 64):
                if i < kept:
                    C[by * kept + i, bx * 64 + j] = acc[i, j]

    return main


@pytest.mark.parametrize("config", [{}, {"kept": 40}, {"kept": 64, "bM": 128, "threads": 256}])
def test_rows_that_are_not_stored_leave_others_alone(config):
    dims = {"M": Guard(), "N": Guard(div=8)}
    kernel = elaborate(first_rows, name="first_rows", dims=dims, args={}, config=config)
    assert Beside(kernel, SM90A).run({"M": 259, "N": 136}) == []
