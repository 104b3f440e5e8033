# ruff: noqa: SIM117
"""T.If with T.Then and T.Else, and T.While: branches and loops as context managers."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree

import tilec.language as T
from tilec.errors import SourceRuntimeError
from tilec.language.frontend.elaborate import elaborate


@T.prim_func
def branches(A: T.Tensor((32,), "int32"), B: T.Tensor((32,), "int32")):
    with T.Kernel(1, threads=32):
        count = T.alloc_var("int32")
        count = 0
        with T.While(A[count] >= 0):
            count += 1
        for i in T.Parallel(32):
            with T.If(A[i] > 2 and i < 20):
                with T.Then():
                    B[i] = A[i] * 10
                with T.Else():
                    with T.If(i == 31):
                        with T.Then():
                            B[i] = count
                        with T.Else():
                            B[i] = -1
            with T.If(False):
                with T.Then():
                    B[i] = 77
            with T.If(T.get_thread_extent(0) == 32):
                with T.Then():
                    B[i] += 100
                with T.Else():
                    B[i] = 0


def test_branches_and_a_loop_as_context_managers() -> None:
    a = np.arange(32, dtype=np.int32) % 7
    a[9] = -4
    i = np.arange(32)
    want = np.where((a > 2) & (i < 20), a * 10, np.where(i == 31, 9, -1)) + 100
    agree(branches, a, np.zeros(32, np.int32), expected=want)


@T.prim_func
def alone(B: T.Tensor((4,), "int32")):
    with T.Kernel(1, threads=32):
        with T.Else():
            B[0] = 1


@T.prim_func
def empty(B: T.Tensor((4,), "int32")):
    with T.Kernel(1, threads=32) as bx:
        with T.If(bx == 0):
            pass
        B[0] = 1


@pytest.mark.parametrize(
    ("kernel", "text"), [(alone, "T.Else stands in no T.If"), (empty, "T.If without T.Then")]
)
def test_parts_need_each_other(kernel: object, text: str) -> None:
    with pytest.raises(SourceRuntimeError, match=text):
        elaborate(kernel, name="kernel", dims={}, args={}, config={})


@T.prim_func
def fixed(B: T.Tensor((4,), "int32")):
    with T.Kernel(4, threads=32) as bx:
        with T.While(bx < 2):
            B[0] = 1


@T.prim_func
def endless(B: T.Tensor((4,), "int32")):
    with T.Kernel(4, threads=32):
        with T.While(True):
            B[0] = 1


@T.prim_func
def skipped(B: T.Tensor((4,), "int32")):
    with T.Kernel(1, threads=32):
        for i in T.Parallel(4):
            B[i] = i
        with T.While(False):
            B[0] = 9


def test_loops_that_never_end_or_begin() -> None:
    with pytest.raises(SourceRuntimeError, match="condition of while never changes"):
        elaborate(fixed, name="kernel", dims={}, args={}, config={})
    with pytest.raises(SourceRuntimeError, match="always true"):
        elaborate(endless, name="kernel", dims={}, args={}, config={})
    with pytest.warns(UserWarning, match="never true is left out"):
        agree(skipped, expected=np.arange(4), targets=("cpu",))
