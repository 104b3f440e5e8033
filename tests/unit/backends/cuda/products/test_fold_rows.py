"""Rows of a second operand in groups that TMA takes: which launches they make, and of what none are made."""

from __future__ import annotations

from pathlib import Path

import pytest

import tilec.language as T
from tilec.backends.cuda.backend import CudaBackend
from tilec.backends.cuda.codegen import images as cuda
from tilec.backends.cuda.emit.entry import lower_kernel
from tilec.backends.cuda.matmul.nodes import ClearFront, MatmulRoles, RingDrain, WarpgroupGemm
from tilec.backends.cuda.warp_roles.nodes import TmaLoad
from tilec.backends.cuda.warp_roles.strategy import roles_of
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.errors import UnsupportedError
from tilec.ir.guards import Guard
from tilec.ir.nodes import Kernel, walk
from tilec.ir.text.printer import format_kernel
from tilec.language.frontend.elaborate import elaborate, load_entry
from tilec.sizes import evaluate_size
from tilec.targets import parse_target

KERNELS = Path(__file__).parents[5] / "examples" / "kernels"
SM90A, SM80 = parse_target("sm_90a"), parse_target("sm_80")
DIMS = {"M": Guard(max=64), "N": Guard(), "K": Guard()}
CONFIG = {"bM": 64, "bN": 128, "bK": 64, "num_stages": 4, "threads": 128, "fold_k": True}


def product(entry: str = "matmul", **config: object) -> Kernel:
    """A product of few rows by a matrix whose rows begin anywhere."""
    return elaborate(
        load_entry(f"gemm.py:{entry}", KERNELS),
        name="product",
        dims=DIMS,
        args={"dtype": "float16"},
        config={**CONFIG, **config},
    )


def half(M, N, K, bM=64, bN=64, bK=64, threads=128, first=0, axes=2):
    """A product of a part of K, in tiles along one axis of the grid or two."""

    @T.prim_func
    def main(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float32")):
        grid = (T.ceildiv(N, bN), T.ceildiv(M, bM)) if axes == 2 else (T.ceildiv(N, bN),)
        with T.Kernel(*grid, threads=threads) as found:
            bx, by = found if axes == 2 else (found, 0)
            a, b = T.alloc_shared((bM, bK), "float16"), T.alloc_shared((bK, bN), "float16")
            acc = T.alloc_fragment((bM, bN), "float32")
            T.clear(acc)
            for ko in T.Pipelined(T.ceildiv(K, bK) - first, num_stages=2):
                T.copy(A[by * bM, ko * bK], a)
                T.copy(B[ko * bK, bx * bN], b)
                T.gemm(a, b, acc)
            T.copy(acc, C[by * bM, bx * bN])

    return main


#: What epilogues make of a sum at a place of its tile.
EPILOGUES = {
    "sums": lambda acc, i, j: acc[i, j],
    "pairs": lambda acc, i, j: T.if_then_else(j % 2 == 0, acc[i, j + 1], acc[i, j - 1]),
    "places": lambda acc, i, j: acc[i, j] * j,
}


def any_product(M, N, K, dtype="float16", sums="float32", across=False, trans=True, epilogue="sums"):
    """A product whose first operand is stored ``across`` K or along it, the second one along where ``trans``
    says so."""
    value = EPILOGUES[epilogue]

    @T.prim_func
    def main(
        A: T.Tensor((K, M) if across else (M, K), dtype),
        W: T.Tensor((N, K) if trans else (K, N), dtype),
        C: T.Tensor((M, N), sums),
    ):
        with T.Kernel(T.ceildiv(N, 64), T.ceildiv(M, 64), threads=128) as (bx, by):
            a, w = T.alloc_shared((64, 64), dtype), T.alloc_shared((64, 64), dtype)
            acc = T.alloc_fragment((64, 64), sums)
            T.clear(acc)
            for ko in T.Pipelined(T.ceildiv(K, 64), num_stages=2):
                T.copy(A[(ko * 64, by * 64) if across else (by * 64, ko * 64)], a)
                T.copy(W[(bx * 64, ko * 64) if trans else (ko * 64, bx * 64)], w)
                T.gemm(a, w, acc, transpose_A=across, transpose_B=trans)
            for i, j in T.Parallel(64, 64):
                C[by * 64 + i, bx * 64 + j] = value(acc, i, j)

    return main


def asked(**args: object) -> Kernel:
    """A product that asks for what its factory makes of ``args``."""
    return elaborate(any_product, name="along", dims=DIMS, config={"fold_k": True}, args=args)


def test_launches_that_order_multiply_and_add(golden) -> None:
    golden(format_kernel(lower(product(), SM90A, until="fold_rows")))


def test_launches_that_move_and_multiply(golden) -> None:
    golden(format_kernel(lower(product("linear", bK=128, split_k=2), SM90A, until="fold_rows")))


@pytest.mark.parametrize("change", [{}, {"swap": True, "bM": 16, "threads": 256}], ids=str)
def test_both_operands_come_by_tma(change) -> None:
    orders, multiplies, adds = lower(product(**change), SM90A).launches
    roles = roles_of(multiplies, MatmulRoles)
    assert sum(isinstance(stmt, TmaLoad) for stmt in walk(roles.producer)) == 2
    assert (orders.strategy, adds.strategy, adds.schedule.pdl) == (None, None, True)


def test_a_map_has_a_row_for_each_whole_group() -> None:
    maps = to_tir(lower(product(swap=True, bM=16), SM90A), SM90A).launches[1].tensor_maps
    assert ("N * 8", "K // 8") in [found.extents for found in maps]


@pytest.fixture(scope="module")
def along() -> Kernel:
    """A product by rows along K, lowered."""
    return lower(product("linear", swap=True, bM=16, threads=256, split_k=2), SM90A)


def test_a_map_ends_with_each_row_of_a_group(along) -> None:
    maps = to_tir(along, SM90A).launches[1].tensor_maps
    assert len(maps) <= CudaBackend.max_tensor_maps
    rows = [found for found in maps if len(found.extents) == 2]
    dims = {"N": 21, "K": 5}
    ends = [tuple(evaluate_size(text, dims) for text in found.extents) for found in rows]
    assert ends == [((part + 1) * 5, 3 if part < 5 else 2) for part in range(8)]
    assert [evaluate_size(rows[7].extents[axis], {"N": 3, "K": 5}) for axis in (0, 1)] == [15, 1]


def test_fronts_of_rows_are_cleared_before_products(along) -> None:
    roles = roles_of(along.launches[1], MatmulRoles)
    (drain,) = (stmt for stmt in roles.consumer if isinstance(stmt, RingDrain))
    assert [type(stmt) for stmt in drain.body] == [ClearFront, WarpgroupGemm]
    assert drain.body[0].tile.buffer in (drain.body[1].a.buffer, drain.body[1].b.buffer)


@pytest.mark.nvrtc
@pytest.mark.parametrize(
    "change",
    [
        {"swap": True, "bM": 16, "bK": 128, "threads": 256, "split_k": 2},
        {"bM": 128, "bN": 128, "threads": 256},
    ],
    ids=str,
)
def test_the_assembler_lets_products_run_on(change) -> None:
    kernel = product("linear", **change)
    _, multiplies = cuda.compile_kernel(lower_kernel(lower(kernel, SM90A), SM90A), SM90A, "k").launches
    assert "serialized" not in str(multiplies.roads)
    assert multiplies.gpu is not None
    assert multiplies.gpu.spills == 0


def test_hints_follow_what_stands_for_the_operands() -> None:
    kernel = product(pdl=True, constant=("A", "B"), evict_first=("B",), evict_last=("A",))
    schedule = lower(kernel, SM90A, until="fold_rows").launches[1].schedule
    assert (schedule.constant, schedule.evict_first, schedule.evict_last) == (
        ("B_folded",),
        ("B_folded",),
        ("A_folded",),
    )


@pytest.mark.parametrize(
    ("kernel", "said"),
    [
        (product(split_k=2), "K is shared in one way"),
        (product(spread_k=2), "K is shared in one way"),
        (product("linear", spread_k=2), "K is shared in one way"),
        (asked(across=True), "A is not stored along K"),
        (asked(dtype="int8", sums="int32"), "groups of 16 rows of int8"),
        (asked(epilogue="pairs"), "other columns than an element's own"),
        (asked(epilogue="pairs", trans=False), "other columns than an element's own"),
        (asked(epilogue="places"), "where in its tile a column is"),
        (product(bK=32), "128 bytes"),
        (
            elaborate(half, name="half", dims=DIMS, config={"fold_k": True}, args={"first": 1}),
            "along all of K",
        ),
        (elaborate(half, name="half", dims=DIMS, config={"fold_k": True}, args={"axes": 1}), "its grid has"),
    ],
    ids=[
        "split_k",
        "spread_k",
        "parts along",
        "first operand",
        "type",
        "pairs",
        "pairs across",
        "places",
        "tile",
        "part of K",
        "grid",
    ],
)
def test_what_is_not_folded_says_why(kernel, said) -> None:
    with pytest.raises(UnsupportedError, match=f"fold_k: .*{said}"):
        lower(kernel, SM90A)


def test_other_targets_keep_one_launch() -> None:
    assert len(lower(product(align=False), SM80).launches) == 1
