"""Results that each warpgroup stores by itself: its boxes, and the launches that have such."""

from __future__ import annotations

import pytest

import tilec.language as T
from tilec.backends.cuda.analysis.pipelines.parts import Parts, parts_of
from tilec.backends.cuda.nodes import EachTile, PartStore, Sync
from tilec.backends.pipeline import lower
from tilec.ir.layout import Digit, Layout
from tilec.ir.nodes import Launch, walk
from tilec.language.frontend.elaborate import elaborate
from tilec.targets import parse_target

HOPPER = parse_target("sm_90a")
COLUMNS = 64


def sums(groups: int, rows: int, columns: int, turned: bool = False) -> Layout:
    """The accumulator of so many warpgroups, as they store it or its transpose."""
    behind = rows // 64 // groups
    down = [Digit(8, 4, "lane"), Digit(2, 2, "reg"), Digit(4 * groups, 1, "warp")]
    down += [Digit(behind, columns // 2, "reg")] if behind > 1 else []
    right = (Digit(2, 1, "reg"), Digit(4, 1, "lane"), Digit(columns // 8, 4, "reg"))
    digits = (tuple(down), right)
    return Layout(digits[::-1] if turned else digits)


@pytest.mark.parametrize(
    ("layout", "parts"),
    [
        (sums(2, 128, 128), Parts((64, 64), ((0, 0), (0, 64)), (64, 0))),
        (sums(2, 128, 256, turned=True), Parts((256, 64), ((0, 0),), (0, 64))),
        (sums(1, 64, 64), Parts((64, 64), ((0, 0),), (0, 0))),
        (sums(2, 256, 64), Parts((64, 64), ((0, 0), (128, 0)), (64, 0))),
    ],
)
def test_warpgroups_have_boxes(layout: Layout, parts: Parts) -> None:
    assert parts_of(layout, COLUMNS) == parts


@pytest.mark.parametrize(
    "layout",
    [
        Layout(((Digit(8, 1, "warp"),), (Digit(32, 1, "lane"), Digit(2, 1, "reg")))),  # four rows each
        Layout(((Digit(32, 1, "lane"), Digit(4, 1, "warp")), (Digit(32, 1, "reg"), Digit(2, 4, "warp")))),
        Layout(((Digit(16, 1, "lane"), Digit(8, 1, "warp")), (Digit(64, 1, "reg"),))),  # two lanes each
    ],
)
def test_what_is_no_box_is_no_part(layout: Layout) -> None:
    assert parts_of(layout, COLUMNS) is None


def lowered(read: bool = False, columns: int = 1024, behind: bool = False) -> Launch:
    """A product of scaled rows; ``read``: the result is read, too; ``behind``: and others are stored."""

    @T.prim_func
    def kernel(
        A: T.Tensor((8192, 1024), "float16"),
        B: T.Tensor((1024, columns), "float16"),
        factors: T.Tensor((8192,), "float32"),
        C: T.Tensor((8192, columns), "float16"),
        kept: T.Tensor((8192,), "float32"),
    ):
        with T.Kernel(T.ceildiv(columns, 128), 64, threads=256) as (bx, by):
            As, Bs = T.alloc_shared((128, 64), "float16"), T.alloc_shared((64, 128), "float16")
            sums = T.alloc_fragment((128, 128), "float32")
            T.clear(sums)
            for k in T.Pipelined(16, num_stages=3):
                T.copy(A[by * 128, k * 64], As)
                T.copy(B[k * 64, bx * 128], Bs)
                for i, j in T.Parallel(128, 64):
                    As[i, j] = As[i, j] * factors[by * 128 + i]
                T.gemm(As, Bs, sums)
            if read:
                for i, j in T.Parallel(128, 128):
                    sums[i, j] += C[by * 128 + i, bx * 128 + j]
            T.copy(sums, C[by * 128, bx * 128])
            if behind:
                for i in T.Parallel(128):
                    kept[by * 128 + i] = factors[by * 128 + i] * 2.0

    made = elaborate(kernel, name="kernel", dims={}, args={}, config={})
    return lower(made, HOPPER, until="synchronise").launches[0]


def test_warpgroups_store_their_parts_without_waiting_for_each_other() -> None:
    (tiles,) = [stmt for stmt in walk(lowered().body) if isinstance(stmt, EachTile) and has_parts(stmt)]
    assert not any(isinstance(stmt, Sync) for stmt in walk(tiles.body))


def test_results_that_are_read_or_start_anywhere_are_stored_by_all_threads() -> None:
    assert not has_parts(lowered(read=True))
    assert not has_parts(lowered(columns=1020))


def test_stores_beside_others_are_those_of_all_threads() -> None:
    assert not has_parts(lowered(behind=True))


def has_parts(stmt: Launch | EachTile) -> bool:
    """Whether a statement has such stores."""
    return any(isinstance(inner, PartStore) for inner in walk(stmt.body))
