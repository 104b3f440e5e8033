"""Rows of a tensor that a trip reads and then writes are read ahead; those that other trips write are not."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, elaborated

import tilec.language as T
from tilec.backends.cuda.nodes import AheadLoop
from tilec.backends.pipeline import lower
from tilec.ir.nodes import walk
from tilec.targets import parse_target

TRIPS, COLUMNS = 6, 128


def passed_on(kind):
    """Each row becomes what stands before it; ``kind`` says what else a trip writes."""

    @T.prim_func
    def main(S: T.Tensor((TRIPS + 1, COLUMNS), "float32"), last: T.Tensor((COLUMNS,), "float32")):
        with T.Kernel(1, threads=32):
            state, new = T.alloc_fragment((COLUMNS,), "float32"), T.alloc_fragment((COLUMNS,), "float32")
            T.clear(state)
            for c in T.serial(TRIPS):
                if kind == "first":
                    for j in T.Parallel(COLUMNS):
                        S[c, j] += state[j]
                T.copy(S[c, 0], new)
                T.copy(state, S[c + 1 if kind == "next" else c, 0])
                for j in T.Parallel(COLUMNS):
                    state[j] = state[j] * 2.0 + new[j]
            T.copy(state, last)

    return main


def expected(kind, given):
    rows, state = given.copy(), np.zeros(COLUMNS, np.float32)
    for c in range(TRIPS):
        if kind == "first":
            rows[c] += state
        new = rows[c].copy()
        rows[c + 1 if kind == "next" else c] = state
        state = state * 2 + new
    return rows, state


@pytest.mark.parametrize(("kind", "ahead"), [("", True), ("first", False), ("next", False)])
def test_rows_that_no_other_trip_writes_are_read_ahead(kind, ahead):
    given = np.random.default_rng(4).integers(-3, 4, (TRIPS + 1, COLUMNS)).astype(np.float32)
    agree(passed_on(kind), given, expected=expected(kind, given))
    made = lower(elaborated(passed_on(kind), (given,), None, {}, {}), parse_target("sm_80"))
    assert any(isinstance(stmt, AheadLoop) for stmt in walk(made.launches[0].body)) == ahead
