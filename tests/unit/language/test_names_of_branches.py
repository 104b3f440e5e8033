"""Names that one side of a branch rebinds: what the other side reads, and what may be read behind both."""

from __future__ import annotations

import numpy as np
import pytest
from language_build import build

import tilec.language as T
from tilec.errors import SourceRuntimeError
from tilec.ir.interp import interpreter

Ints = T.Tensor((8,), "int32")
X = np.array([-9, 0, 1, 2, 3, 4, 5, 60], np.int32)


def results(entry) -> list[int]:
    """What a kernel of eight blocks makes of X."""
    found = np.zeros(8, np.int32)
    interpreter.run(build(entry), [X.copy(), found], {})
    return found.tolist()


def test_the_other_side_reads_what_the_name_held_before():
    @T.prim_func
    def main(A: Ints, B: Ints):
        with T.Kernel(8) as bx:
            value, step = A[bx] * 2, 1
            if value > 8:
                value = value - step
                value, step = value * 3, 2
                B[bx] = value + step
            elif value > 2:
                value += 100
                B[bx] = value + step
            else:
                B[bx] = value + step

    doubled = X * 2
    sides = [(doubled - 1) * 3 + 2, doubled + 101, doubled + 1]
    assert results(main) == np.select([doubled > 8, doubled > 2], sides[:2], sides[2]).tolist()


def test_buffers_and_loop_indices_too():
    @T.prim_func
    def main(A: Ints, B: Ints):
        with T.Kernel(8) as bx:
            source, i = A, 5
            if bx > 3:
                for i in T.serial(2):
                    source = B
                    source[bx] = i
            else:
                B[bx] = source[i]

    assert results(main) == [4, 4, 4, 4, 1, 1, 1, 1]


def test_a_branch_that_is_decided_rebinds_for_what_follows():
    @T.prim_func
    def main(A: Ints, B: Ints):
        seen = []
        for taken in (True, False):
            step = 1
            if taken:
                step = 2
                seen.append(step)
            else:
                step = step + 10
            with T.Kernel(8, threads=1) as bx:
                B[bx] = B[bx] + step + len(seen)

    assert results(main) == [15] * 8


@T.prim_func
def only_first(A: Ints, B: Ints):
    with T.Kernel(8) as bx:
        value = A[bx]
        if value > 3:
            value = value + 1
        else:
            B[bx] = value
        B[bx] = value


@T.prim_func
def both(A: Ints, B: Ints):
    with T.Kernel(8) as bx:
        value = A[bx]
        if value > 3:
            value = value + 1
            B[bx] = 0
        else:
            value = value + 2
        B[bx] = value


@T.prim_func
def number(A: Ints, B: Ints):
    with T.Kernel(8) as bx:
        value = 1
        if A[bx] > 3:
            value = 2
        else:
            B[bx] = value
        B[bx] = value


@T.prim_func
def only_inside(A: Ints, B: Ints):
    with T.Kernel(8) as bx:
        if A[bx] > 3:
            value = A[bx] + 1
            B[bx] = value
        else:
            B[bx] = value


@pytest.mark.parametrize("entry", [only_first, both, number, only_inside])
def test_behind_both_sides_the_name_is_what_the_last_one_made(entry):
    told = r"value (is used outside|holds a Python number)"
    with pytest.raises(SourceRuntimeError, match=told) as caught:
        build(entry)
    assert "T.alloc_var" in caught.value.remedy


def test_the_region_is_named_by_the_line_of_its_condition():
    with pytest.raises(SourceRuntimeError) as caught:
        build(both)
    assert f"line {caught.value.place.line - 5}" in caught.value.why
