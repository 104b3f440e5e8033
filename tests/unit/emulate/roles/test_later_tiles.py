"""Tiles that a launch brings behind its loops, on an emulated sm_90a: they lie where earlier ones lay."""

from __future__ import annotations

import numpy as np
import pytest

import tilec.language as T
from tilec.backends.cuda.nodes import BoxLoad, GiveBack
from tilec.backends.cuda.passes.waits.place_shared import pool_bytes, shared_tiles
from tilec.backends.pipeline import lower
from tilec.emulate import EmulatedKernel
from tilec.ir.nodes import walk
from tilec.language.frontend.elaborate import elaborate
from tilec.targets import SYSTEM_SHARED_BYTES, parse_target

SM90A = parse_target("sm_90a")
ROWS, COLUMNS, DEPTH = 128, 64, 128


def chunk(early=1, late="behind", scale=True):
    """C = X + early A S + sum over k of 2 W[k] V[k], with X loaded behind the loop, or in "front" of it."""

    @T.prim_func
    def main(
        A: T.Tensor((ROWS, DEPTH), "float16"),
        S: T.Tensor((COLUMNS, DEPTH), "float16"),
        W: T.Tensor((ROWS, 256), "float16"),
        V: T.Tensor((256, COLUMNS), "float16"),
        X: T.Tensor((ROWS, COLUMNS), "float16"),
        C: T.Tensor((ROWS, COLUMNS), "float16"),
    ):
        with T.Kernel(ROWS // 64, threads=128) as bx:
            As, Ss = T.alloc_shared((64, DEPTH), "float16"), T.alloc_shared((COLUMNS, DEPTH), "float16")
            Ws, Vs = T.alloc_shared((64, 64), "float16"), T.alloc_shared((64, COLUMNS), "float16")
            Xs = T.alloc_shared((64, COLUMNS), "float16")
            w, x = T.alloc_fragment((64, 64), "float16"), T.alloc_fragment((64, COLUMNS), "float32")
            acc = T.alloc_fragment((64, COLUMNS), "float32")
            T.clear(acc)
            for _ in range(early):
                T.copy(A[bx * 64, 0], As)
                T.copy(S, Ss)
                T.gemm(As, Ss, acc, transpose_B=True)
            if late == "front":
                T.copy(X[bx * 64, 0], Xs)
            for k in T.Pipelined(4, num_stages=2):
                T.copy(W[bx * 64, k * 64], Ws)
                T.copy(Ws, w)
                for i, j in T.Parallel(64, 64):
                    w[i, j] = w[i, j] * 2
                T.copy(V[k * 64, 0], Vs)
                T.gemm(w, Vs, acc)
            if late == "behind":
                T.copy(X[bx * 64, 0], Xs)
            T.copy(Xs, x)
            for i, j in T.Parallel(64, COLUMNS):
                acc[i, j] += x[i, j]
            T.copy(acc, C[bx * 64, 0])

    return elaborate(main, name="kernel", dims={}, args={}, config={})


def places(kernel) -> dict[str, int]:
    """Byte offsets of the tiles of a kernel that has roles."""
    launch = lower(kernel, SM90A).launches[0]
    assert any(isinstance(stmt, BoxLoad) for stmt in walk(launch.body))
    assert any(isinstance(stmt, GiveBack) for stmt in walk(launch.body))
    return {str(alloc.buffer.name): alloc.place[1] for alloc in shared_tiles(launch.body)}


def test_a_tile_behind_a_loop_lies_where_a_read_one_lay() -> None:
    found = places(chunk())
    assert found["Xs"] == found["As"]


def residuals():
    """C = A + S + sum over k of W[k] V[k] + X + Z: two tiles in front of the loop, two behind it."""

    @T.prim_func
    def main(
        A: T.Tensor((ROWS, COLUMNS), "float16"),
        S: T.Tensor((ROWS, COLUMNS), "float16"),
        W: T.Tensor((ROWS, 256), "float16"),
        V: T.Tensor((256, COLUMNS), "float16"),
        X: T.Tensor((ROWS, COLUMNS), "float16"),
        Z: T.Tensor((ROWS, COLUMNS), "float16"),
        C: T.Tensor((ROWS, COLUMNS), "float16"),
    ):
        with T.Kernel(ROWS // 64, threads=128) as bx:
            As, Ss, Xs, Zs = (T.alloc_shared((64, COLUMNS), "float16") for _ in range(4))
            Ws, Vs = T.alloc_shared((64, 64), "float16"), T.alloc_shared((64, COLUMNS), "float16")
            x, acc = (T.alloc_fragment((64, COLUMNS), "float32") for _ in range(2))
            T.clear(acc)
            for source, tile in ((A, As), (S, Ss)):
                T.copy(source[bx * 64, 0], tile)
                T.copy(tile, x)
                for i, j in T.Parallel(64, COLUMNS):
                    acc[i, j] += x[i, j]
            for k in T.Pipelined(4, num_stages=2):
                T.copy(W[bx * 64, k * 64], Ws)
                T.copy(V[k * 64, 0], Vs)
                T.gemm(Ws, Vs, acc)
            for source, tile in ((X, Xs), (Z, Zs)):
                T.copy(source[bx * 64, 0], tile)
                T.copy(tile, x)
                for i, j in T.Parallel(64, COLUMNS):
                    acc[i, j] += x[i, j]
            T.copy(acc, C[bx * 64, 0])

    return elaborate(main, name="kernel", dims={}, args={}, config={})


def test_two_tiles_behind_a_loop_lie_beside_each_other_and_beside_its_rings() -> None:
    found = places(residuals())
    assert {found["Xs"], found["Zs"]} == {found["As"], found["Ss"]}
    assert min(found["Ws"], found["Vs"]) > max(found["Xs"], found["Zs"])


@pytest.mark.parametrize(("early", "late"), [(2, "behind"), (1, "front")])
def test_a_tile_has_its_own_place_beside_what_is_filled_twice_and_in_front_of_loops(early, late) -> None:
    found = places(chunk(early, late))
    assert found["Xs"] > max(found["As"], found["Ss"])


def test_results_that_leave_through_rings_cost_no_block() -> None:
    launch = lower(chunk(), SM90A).launches[0]
    assert 3 * (pool_bytes(launch) + SYSTEM_SHARED_BYTES) <= 228 * 1024


@pytest.mark.parametrize(("early", "late"), [(1, "behind"), (2, "behind"), (1, "front")])
def test_all_of_them_compute_the_same(early, late) -> None:
    rng = np.random.default_rng(3)
    shapes = [(ROWS, DEPTH), (COLUMNS, DEPTH), (ROWS, 256), (256, COLUMNS), (ROWS, COLUMNS)]
    arrays = [rng.standard_normal(shape).astype(np.float16) for shape in shapes]
    found = np.zeros((ROWS, COLUMNS), np.float16)
    EmulatedKernel(chunk(early, late), SM90A)([*arrays, found], {})
    a, s, w, v, x = (array.astype(np.float32) for array in arrays)
    np.testing.assert_allclose(found, x + early * (a @ s.T) + 2 * w @ v, rtol=2e-3, atol=0.1)
