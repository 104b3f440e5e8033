"""Products in loops that are left early, or whose trips are: by those who load and those who compute."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree
from breadth import parametrized

import tilec.language as T

SIZE, TRIPS = 64, 4
FORMS = (
    "break before loads",
    "continue before loads",
    "break between",
    "continue between",
    "break behind",
    "continue in front of a second product",
    "break behind a loop of products",
    "continue in a branch with loads",
)


def left(form: str, stages: int):
    """Twice the same loop, each trip of which a number may end."""

    @T.prim_func
    def main(
        A: T.Tensor((SIZE, SIZE * TRIPS), "float16"),
        B: T.Tensor((SIZE * TRIPS, SIZE), "float16"),
        ends: T.Tensor((TRIPS,), "int32"),
        C: T.Tensor((SIZE, SIZE), "float32"),
    ):
        with T.Kernel(1, threads=128):
            a, b = (T.alloc_shared((SIZE, SIZE), "float16") for _ in range(2))
            acc = T.alloc_fragment((SIZE, SIZE), "float32")
            T.clear(acc)
            for _ in T.serial(2):
                for k in T.Pipelined(TRIPS, num_stages=stages):
                    if form == "break before loads" and ends[k] > 0:
                        break
                    if form == "continue before loads" and ends[k] > 0:
                        continue
                    T.copy(A[0, k * SIZE], a)
                    if form == "continue in a branch with loads" and ends[k] > 0:
                        T.copy(B[k * SIZE, 0], b)
                        T.gemm(a, b, acc)
                        continue
                    T.copy(B[k * SIZE, 0], b)
                    if form == "break between" and ends[k] > 0:
                        break
                    if form == "continue between" and ends[k] > 0:
                        continue
                    if form == "break behind a loop of products":
                        for _ in T.serial(2):
                            T.gemm(a, b, acc)
                    else:
                        T.gemm(a, b, acc)
                    if form.startswith("break behind") and ends[k] > 0:
                        break
                    if form == "continue in front of a second product":
                        if ends[k] > 0:
                            continue
                        T.gemm(a, b, acc)
            T.copy(acc, C)

    return main


def weights(form: str, ends: np.ndarray) -> np.ndarray:
    """How often the product of each trip is added in one loop."""
    ended = ends > 0
    first = int(np.argmax(ended)) if ended.any() else TRIPS
    trips = np.arange(TRIPS)
    return {
        "break before loads": trips < first,
        "continue before loads": ~ended,
        "break between": trips < first,
        "continue between": ~ended,
        "break behind": trips <= first,
        "continue in front of a second product": 2 - ended,
        "break behind a loop of products": 2 * (trips <= first),
        "continue in a branch with loads": np.ones(TRIPS),
    }[form]


@pytest.mark.parametrize("ends", [(0, 1, 0, 2), (0, 0, 0, 0)])
@parametrized(
    ("form", "stages"),
    [(form, stages) for form in FORMS for stages in (0, 3)],
    fast=[(form, 3) for form in FORMS],
)
def test_products_of_trips_that_end_early(form: str, stages: int, ends: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, shape).astype(np.float16) / 4 for shape in ((SIZE, 256), (256, SIZE)))
    x, y = a.reshape(SIZE, TRIPS, SIZE).astype(np.float32), b.reshape(TRIPS, SIZE, SIZE).astype(np.float32)
    found = weights(form, np.array(ends))
    wanted = 2 * sum(found[k] * (x[:, k] @ y[k]) for k in range(TRIPS))
    agree(left(form, stages), a, b, np.array(ends, np.int32), expected=wanted, targets=("sm_80", "sm_90a"))


@T.prim_func
def summed(
    X: T.Tensor((4, 128), "float32"), skipped: T.Tensor((4,), "int32"), Y: T.Tensor((128,), "float32")
):
    """Copies on their way when a trip ends early; behind the loop other threads write over the last one."""
    with T.Kernel(1, threads=64):
        row, total = T.alloc_shared((128,), "float32"), T.alloc_shared((128,), "float32")
        T.clear(total)
        for t in T.serial(4):
            T.copy(X[t, 0], row)
            if skipped[t] == 2:
                break
            if skipped[t] == 1:
                continue
            for i in T.Parallel(128):
                total[i] = total[i] + row[i]
        for i in T.Parallel(128):
            row[i] = total[i] * 2
        T.copy(row, Y)


@pytest.mark.parametrize("skipped", [(1, 0, 0, 1), (0, 1, 1, 1), (0, 0, 2, 0)])
def test_copies_of_trips_that_end_early_have_come(skipped: tuple[int, ...]) -> None:
    x = np.arange(512, dtype=np.float32).reshape(4, 128)
    last = skipped.index(2) if 2 in skipped else 4
    wanted = 2 * sum(x[t] for t in range(last) if not skipped[t])
    agree(summed, x, np.array(skipped, np.int32), dims={}, expected=wanted)
