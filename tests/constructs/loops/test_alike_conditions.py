"""Conditions that are the same for all elements of a vector, and rows that all of them look up."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, roads

import tilec.language as T

WIDE = 256
CONDITIONS = {
    "every other run": lambda j, row, flags: (j // 8) % 2 == 0,
    "runs by bits": lambda j, row, flags: ((j >> 3) & 3) == 1,
    "runs up to one": lambda j, row, flags: j // 32 < row,
    "another run": lambda j, row, flags: j // 64 != row,
    "a flag of a run": lambda j, row, flags: flags[row, j // 32] != 0,
    "a bit of a flag": lambda j, row, flags: (flags[row, j >> 5] >> ((j // 8) % 4)) & 1 != 0,
    "one of two ends": lambda j, row, flags: T.Or(j < 64, j % 128 >= 104),
    "columns of a head": lambda j, row, flags: T.Not(j % 64 < 40),
}


def masked(condition):
    @T.prim_func
    def kernel(
        X: T.Tensor((8, WIDE), "float16"), flags: T.Tensor((8, 8), "int32"), Y: T.Tensor((8, WIDE), "float16")
    ):  # fmt: skip
        with T.Kernel(8, threads=32) as row:
            T.clear(Y[row, 0:WIDE])
            for j in T.Parallel(WIDE):
                if condition(j, row, flags):
                    Y[row, j] = X[row, j]

    return kernel


def inputs():
    rng = np.random.default_rng(5)
    return rng.integers(1, 9, (8, WIDE)).astype(np.float16), rng.integers(0, 16, (8, 8)).astype(np.int32)


def vectors_alone(kernel, *values):
    assert not [str(road) for road in roads(kernel, *values) if road.kind == "elements"]


@pytest.mark.parametrize("name", CONDITIONS)
def test_a_vector_is_stored_under_one_test(name):
    agree(masked(CONDITIONS[name]), *inputs(), targets=("sm_80",))
    vectors_alone(masked(CONDITIONS[name]), *inputs())


@pytest.mark.parametrize(
    "condition", [lambda j, row, flags: (j // 4) % 2 == 0, lambda j, row, flags: j % 64 < 36]
)
def test_a_vector_that_is_parted_is_stored_in_elements(condition):
    agree(masked(condition), *inputs(), targets=("sm_80",))


def test_numbers_of_elements_go_to_rows_that_a_table_names():
    @T.prim_func
    def gathered(
        X: T.Tensor((8, WIDE), "float16"), rows: T.Tensor((6,), "int32"), Y: T.Tensor((6, WIDE), "float16")
    ):  # fmt: skip
        with T.Kernel(1, threads=64):
            for p in T.Parallel(6 * WIDE):
                if rows[p >> 8] >= 0:
                    Y[p >> 8, (p & 255) ^ 16] = X[rows[p // WIDE], p % WIDE]
                else:
                    Y[p >> 8, (p & 255) ^ 16] = 0

    values = inputs()[0], np.array([3, -1, 0, 7, 7, 1], np.int32)
    agree(gathered, *values, targets=("sm_80",))
    vectors_alone(gathered, *values)
