"""Rows of a second operand in groups that TMA takes: which launches they make, and of what none are made."""

from __future__ import annotations

from pathlib import Path

import pytest

import tilec.language as T
from tilec.backends.cuda.matmul.nodes import MatmulRoles
from tilec.backends.cuda.warp_roles.nodes import TmaLoad
from tilec.backends.cuda.warp_roles.strategy import roles_of
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.errors import UnsupportedError
from tilec.ir.guards import Guard
from tilec.ir.nodes import Kernel, walk
from tilec.ir.text.printer import format_kernel
from tilec.language.frontend.elaborate import elaborate, load_entry
from tilec.targets import parse_target

KERNELS = Path(__file__).parents[4] / "examples" / "kernels"
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


def test_launches_that_order_multiply_and_add(golden) -> None:
    golden(format_kernel(lower(product(), SM90A, until="fold_rows")))


@pytest.mark.parametrize("change", [{}, {"swap": True, "bM": 16, "threads": 256}], ids=str)
def test_both_operands_come_by_tma(change) -> None:
    orders, multiplies, adds = lower(product(**change), SM90A).launches
    roles = roles_of(multiplies, MatmulRoles)
    assert sum(isinstance(stmt, TmaLoad) for stmt in walk(roles.producer)) == 2
    assert (orders.strategy, adds.strategy, adds.schedule.pdl) == (None, None, True)


def test_a_map_has_a_row_for_each_whole_group() -> None:
    maps = to_tir(lower(product(swap=True, bM=16), SM90A), SM90A).launches[1].tensor_maps
    assert ("N * 8", "K // 8") in [found.extents for found in maps]


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
        (product("linear"), "W is not stored across K"),
        (product(bK=32), "128 bytes"),
        (
            elaborate(half, name="half", dims=DIMS, config={"fold_k": True}, args={"first": 1}),
            "along all of K",
        ),
        (elaborate(half, name="half", dims=DIMS, config={"fold_k": True}, args={"axes": 1}), "its grid has"),
    ],
    ids=["split_k", "spread_k", "along K", "tile", "part of K", "grid"],
)
def test_what_is_not_folded_says_why(kernel, said) -> None:
    with pytest.raises(UnsupportedError, match=f"fold_k: .*{said}"):
        lower(kernel, SM90A)


def test_other_targets_keep_one_launch() -> None:
    assert len(lower(product(), SM80).launches) == 1
