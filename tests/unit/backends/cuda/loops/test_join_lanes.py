"""Additions of lanes to one element, joined by shuffles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from agree import agree, elaborated

import tilec.language as T
from tilec.backends.cuda.passes.sums.join_lanes import JoinLanes
from tilec.ir.nodes import Atomic, If, walk
from tilec.ir.nodes.threads import Lane


def sums(place: str, threads: tuple[int, int] = (4, 16), dtype: str = "float32"):
    """Each thread adds one element to an element of four."""
    width, height = threads

    @T.prim_func
    def main(A: T.Tensor((height, width), dtype), C: T.Tensor((8,), dtype)):
        with T.Kernel(1, threads=threads):
            tx, ty = T.get_thread_binding(0), T.get_thread_binding(1)
            total = T.alloc_shared((8,), dtype)
            if ty * width + tx < 8:
                total[ty * width + tx] = 0
            if place == "row":
                T.atomic_add(total[ty % 8], A[ty, tx])
            elif place == "column":
                T.atomic_add(total[tx], A[ty, tx])
            elif place == "one":
                T.atomic_add(total[3], A[ty, tx])
            elif place == "half":
                T.atomic_add(total[tx // 2], A[ty, tx])
            elif place == "read":
                T.atomic_add(total[T.cast(A[ty, tx], "int32") % 8], A[ty, tx])
            elif place == "branch" and ty % 2 == 0:
                T.atomic_add(total[tx], A[ty, tx])
            if ty * width + tx < 8:
                C[ty * width + tx] = total[ty * width + tx]

    return main


def expected(place: str, a: np.ndarray) -> np.ndarray:
    """What the elements come to."""
    ty, tx = np.indices(a.shape)
    at = {
        "row": ty % 8, "column": tx, "one": np.full_like(tx, 3), "half": tx // 2,
        "read": a.astype(np.int32) % 8, "branch": tx,
    }[place]  # fmt: skip
    counted = np.where(ty % 2 == 0, a, 0) if place == "branch" else a
    total = np.zeros(8, a.dtype)
    np.add.at(total, at, counted)
    return total


def shuffles(main: Any, *arguments: np.ndarray) -> int:
    """How many shuffles stand in front of the addition of one lane."""
    launch = JoinLanes().launch(elaborated(main, arguments, None, {}, {}).launches[0])
    found = sum(isinstance(stmt, Lane) for stmt in walk(launch.body))
    alone = [stmt for stmt in walk(launch.body) if isinstance(stmt, If) and isinstance(stmt.then[-1], Atomic)]
    assert bool(found) <= bool(alone)
    return found


@pytest.mark.parametrize(
    ("place", "bits"), [("row", 2), ("column", 3), ("one", 5), ("half", 4), ("read", 0), ("branch", 0)]
)
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_lanes_that_add_to_one_element_add_once(place, bits, dtype):
    a = np.random.default_rng(0).integers(0, 9, (16, 4)).astype(dtype)
    main = sums(place, dtype=dtype)
    agree(main, a, expected=expected(place, a))
    assert shuffles(main, a) == bits


@pytest.mark.parametrize(("threads", "bits"), [((32, 2), 5), ((64, 1), 5), ((2, 32), 2), ((12, 4), 0)])
def test_a_block_of_whole_warps_joins_what_its_warps_share(threads, bits):
    a = np.random.default_rng(0).integers(0, 9, threads[::-1]).astype(np.float32)
    main = sums("row", threads)
    agree(main, a, expected=expected("row", a))
    assert shuffles(main, a) == bits


def test_other_types_add_one_by_one():
    a = np.random.default_rng(0).integers(0, 9, (16, 4)).astype(np.float16)
    assert shuffles(sums("one", dtype="float16"), a) == 0
