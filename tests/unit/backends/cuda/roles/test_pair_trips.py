"""Loops that make operands in registers for two trips at once."""

from __future__ import annotations

from typing import Any

import pytest

import tilec.language as T
from tilec.backends.cuda.nodes import EachTile, GiveBack, ProductsWait, WarpgroupProduct
from tilec.backends.pipeline import lower
from tilec.ir.nodes import For, If, Launch, walk
from tilec.language.frontend.elaborate import elaborate
from tilec.targets import parse_target

HOPPER = parse_target("sm_90a")


def lowered(wide: int = 1024, dtype: str = "int8", scales_sums: bool = False) -> Launch:
    """A product of converted and scaled rows, ``wide`` numbers along K."""

    @T.prim_func
    def kernel(
        A: T.Tensor((8192, wide), dtype),
        B: T.Tensor((8192, wide), "float16"),
        factors: T.Tensor((8192,), "float16"),
        C: T.Tensor((8192, 8192), "float16"),
    ):
        with T.Kernel(64, 64, threads=256) as (bx, by):
            As, Bs = T.alloc_shared((128, 64), dtype), T.alloc_shared((128, 64), "float16")
            made = T.alloc_fragment((128, 64), "float16")
            sums = T.alloc_fragment((128, 128), "float32")
            T.clear(sums)
            for k in T.Pipelined(T.ceildiv(wide, 64), num_stages=3):
                T.copy(A[by * 128, k * 64], As)
                T.copy(B[bx * 128, k * 64], Bs)
                for i, j in T.Parallel(128, 64):
                    made[i, j] = As[i, j].astype("float16") * factors[by * 128 + i]
                T.gemm(made, Bs, sums, transpose_B=True)
                if scales_sums:
                    for i, j in T.Parallel(128, 128):
                        sums[i, j] = sums[i, j] * 0.5
            T.copy(sums, C[by * 128, bx * 128])

    made = elaborate(kernel, name="kernel", dims={}, args={}, config={})
    return lower(made, HOPPER, until="place_product_waits").launches[0]


def trips(launch: Launch | EachTile) -> list[For]:
    """The loops with products."""
    return [stmt for stmt in walk(launch.body) if isinstance(stmt, For) and count(stmt, WarpgroupProduct)]


def count(stmt: For, kind: type) -> int:
    """How many statements of a kind stand in a loop itself."""
    return sum(isinstance(inner, kind) for inner in stmt.body)


def operands(loop: For) -> set[int]:
    """The fragments that products of a loop take."""
    return {id(stmt.a.buffer) for stmt in loop.body if isinstance(stmt, WarpgroupProduct)}


def test_a_pair_of_trips_is_waited_for_at_once() -> None:
    (loop,) = trips(lowered())
    assert len(operands(loop)) == count(loop, WarpgroupProduct) == 4
    waits = [stmt.pending for stmt in loop.body if isinstance(stmt, ProductsWait)]
    assert waits == [2, 0]  # a stage goes back before the other one
    assert count(loop, GiveBack) == 4


@pytest.mark.parametrize(("wide", "odd"), [(1024, False), (1088, True)])
def test_a_last_trip_stands_behind_an_odd_number(wide: int, odd: bool) -> None:
    (tiles,) = [stmt for stmt in walk(lowered(wide).body) if isinstance(stmt, EachTile) and trips(stmt)]
    rest = [stmt for stmt in tiles.body if isinstance(stmt, (If, WarpgroupProduct))]
    assert bool(rest) == odd


@pytest.mark.parametrize("changes", [{"dtype": "float16"}, {"scales_sums": True}])
def test_loops_without_stages_for_two_trips_or_with_more_to_do_stay(changes: dict[str, Any]) -> None:
    assert all(len(operands(loop)) <= 2 for loop in trips(lowered(**changes)))
