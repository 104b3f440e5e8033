"""T.sync_grid: all blocks of a launch meet, in a cooperative launch. Its results are a GPU's alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from agree import elaborated

import tilec.language as T
from tilec.backends.cuda.codegen import images as cuda
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.emulate.launch import Emulator
from tilec.errors import UnsupportedError
from tilec.ir.interp import interpreter
from tilec.targets import native_target, parse_target

X = np.zeros((4, 32), np.float32)


@T.prim_func
def neighbours(
    X: T.Tensor((4, 32), "float32"), W: T.Tensor((4, 32), "float32"), Y: T.Tensor((4, 32), "float32")
):
    with T.Kernel(4, threads=32) as bx:
        for i in T.Parallel(32):
            W[bx, i] = X[bx, i] + 1.0
        T.sync_grid()
        for i in T.Parallel(32):
            Y[bx, i] = W[(bx + 1) % 4, i]


@T.prim_func
def in_a_loop(A: T.Tensor((4, 64, 32), "float32"), Y: T.Tensor((4, 32), "float32")):
    with T.Kernel(4, threads=32) as bx:
        s = T.alloc_shared((32,), "float32")
        for k in T.Pipelined(64, num_stages=3):
            T.copy(A[bx, k, 0:32], s)
            T.copy(s, Y[bx, 0:32])
            T.sync_grid()


@T.prim_func
def within_parallel(Y: T.Tensor((4, 32), "float32")):
    with T.Kernel(4, threads=32) as bx:
        for i in T.Parallel(32):
            Y[bx, i] = 1.0
            T.sync_grid()


def lowered(kernel: Any, *inputs: np.ndarray, target: str) -> Any:
    made = elaborated(kernel, inputs, None, {}, {})
    return to_tir(lower(made, parse_target(target)), parse_target(target))


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_the_launch_is_cooperative_behind_one_that_clears_the_count(target: str):
    made = lowered(neighbours, X, target=target)
    assert [launch.cooperative for launch in made.launches] == [False, True]
    assert made.workspace == (("grid_arrivals", "4 * 1"),)
    assert any("cooperative launch" in note for note in made.launches[1].notes)
    launches = cuda.compile_kernel(made, parse_target(target), "k").launches
    assert [launch.gpu.cooperative for launch in launches] == [False, True]


def test_threads_meet_around_the_wait_and_read_memory_again():
    source = cuda.source(lowered(neighbours, X, target="sm_80"), parse_target("sm_80"), "k")
    body = source[source.rindex(" k_1(") :]
    assert "__restrict__" not in body
    assert body.index("W_ptr[") < body.index("cta_sync();") < body.index("tilec_grid_meet(")
    assert body.index("tilec_grid_meet(") < body.rindex("cta_sync();") < body.index("Y_ptr[")


def test_loops_around_it_run_trip_by_trip():
    source = cuda.source(
        lowered(in_a_loop, np.zeros((4, 64, 32), np.float32), target="sm_80"), parse_target("sm_80"), "k"
    )
    assert "cp.async" not in source[source.rindex(" k_1(") :]


def test_blocks_in_turn_refuse_it():
    made = elaborated(neighbours, (X,), None, {}, {})
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    for run in (
        lambda: lower(made, native_target()),
        lambda: interpreter.run(made, [X, X.copy(), X.copy()], {}),
    ):
        with pytest.raises(UnsupportedError, match=r"T\.sync_grid") as caught:
            run()
        assert lines[caught.value.place.line - 1].strip() == "T.sync_grid()"
        assert "two T.Kernel" in caught.value.remedy
    with pytest.raises(UnsupportedError, match="wait for all"):
        Emulator(lowered(neighbours, X, target="sm_80"), parse_target("sm_80"))


def test_iterations_of_parallel_loops_do_not_meet():
    with pytest.raises(UnsupportedError, match=r"T\.sync_grid in T\.Parallel"):
        elaborated(within_parallel, (), None, {}, {})
