"""Loops whose iterations meet no other one's elements, though no linear index tells: on the emulator, which
finds races, beside the interpreter."""

from __future__ import annotations

import pytest
from emulated import SM90A, Beside
from told import told

import tilec.language as T
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.ir.guards import Guard
from tilec.ir.nodes import Kernel
from tilec.language.frontend.elaborate import elaborate

N = 64


def sorted_rows(partner: str, M=None):
    """Bitonic sort of rows, a loop over pairs or over elements of which every second one acts."""

    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M, N), "float32")):
        with T.Kernel(M, threads=64) as b:
            s = T.alloc_shared((N,), "float32")
            T.copy(X[b, 0], s)
            for level in T.serial(1, 7):
                k = T.shift_left(1, level)
                for step in T.serial(level):
                    j = T.shift_left(1, level - 1 - step)
                    if partner == "pairs":
                        for t in T.Parallel(N // 2):
                            low = t // j * (2 * j) + t % j
                            first, second = s[low], s[low + j]
                            up = low // k % 2 == 0
                            s[low] = T.if_then_else(up, T.min(first, second), T.max(first, second))
                            s[low + j] = T.if_then_else(up, T.max(first, second), T.min(first, second))
                    else:
                        for t in T.Parallel(N):
                            other = t ^ j
                            if other > t:
                                first, second = s[t], s[other]
                                if (t & k == 0) == (first > second):
                                    s[t] = second
                                    s[other] = first
            T.copy(s, Y[b, 0])

    return main


def made(build, **args) -> Kernel:
    """A kernel of rows."""
    return elaborate(build, name="kernel", dims={"M": Guard()}, args=args, config={})


def serial(kernel: Kernel) -> list[str]:
    """The loops that run serially."""
    return [line for line in told(to_tir(lower(kernel, SM90A), SM90A).launches[0]) if "is serial" in line]


@pytest.mark.parametrize("partner", ["pairs", "elements"])
def test_a_sorting_network_runs_in_parallel(partner: str) -> None:
    kernel = made(sorted_rows, partner=partner)
    assert serial(kernel) == []
    assert Beside(kernel, SM90A).run({"M": 3}) == []


def butterflies(apart: bool, M=None):
    """Sums of pairs of elements in place, which meet in no element, or in the first."""

    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M, N), "float32")):
        with T.Kernel(M, threads=32) as b:
            s = T.alloc_shared((N,), "float32")
            T.copy(X[b, 0], s)
            for level in T.serial(6):
                j = T.shift_left(1, level)
                for t in T.Parallel(N // 2):
                    low = t // j * (2 * j) + t % j
                    place = low if apart else low % (N // 4)
                    first, second = s[place], s[low + j]
                    s[place] = first + second
                    s[low + j] = first - second
            T.copy(s, Y[b, 0])

    return main


def shifted(M=None):
    """A loop that a call says the step of: nothing is known of where it writes."""

    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), step: T.int32, Y: T.Tensor((M, N), "float32")):
        with T.Kernel(M, threads=32) as b:
            s = T.alloc_shared((N,), "float32")
            T.copy(X[b, 0], s)
            for t in T.Parallel(N // 2):
                s[t * step % N] = s[t * step % N] + 1.0
            T.copy(s, Y[b, 0])

    return main


def test_butterflies_run_in_parallel() -> None:
    kernel = made(butterflies, apart=True)
    assert serial(kernel) == []
    assert Beside(kernel, SM90A).run({"M": 2}) == []


def test_iterations_that_meet_run_one_after_the_other() -> None:
    kernel = made(butterflies, apart=False)
    assert serial(kernel)
    assert Beside(kernel, SM90A).run({"M": 2}) == []


def test_iterations_of_which_nothing_is_known_run_one_after_the_other() -> None:
    assert serial(made(shifted))
