"""Loops of a thread that read in front of several trips what these want of tensors."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, elaborated

import tilec.language as T
from tilec.backends.cuda.nodes import ThreadVector
from tilec.backends.pipeline import lower
from tilec.ir.guards import Guard
from tilec.ir.nodes import For, walk
from tilec.targets import parse_target

THREADS, WIDTH = 32, 4
SM90A = parse_target("sm_90a")


def dots(dtype="float16", inside=False, kept=False, ends=False, written=False, listed=False):
    """Each thread's own dot product of a row with what it reads WIDTH elements of at a time."""

    @T.prim_func
    def kernel(
        X: T.Tensor((THREADS, T.dyn["K"]), dtype),
        y: T.Tensor((T.dyn["K"],), dtype),
        at: T.Tensor((T.dyn["K"],), "int32"),
        first: T.int32,
        out: T.Tensor((THREADS,), "float32"),
    ):
        with T.Kernel(1, threads=THREADS):
            t = T.get_thread_binding(0)
            if not inside:
                a = T.alloc_local((WIDTH,), dtype)
            b = T.alloc_local((WIDTH,), dtype)
            total = T.alloc_local((1,), "float32")
            total[0] = 0
            for k in T.serial(first, y.shape[0] // WIDTH):
                if inside:
                    a = T.alloc_local((WIDTH,), dtype)
                place = k * WIDTH
                if listed:
                    place = at[k] * WIDTH
                for v in T.vectorized(WIDTH):
                    a[v] = X[t, place + v]
                    b[v] = y[k * WIDTH + v]
                if written:
                    y[k * WIDTH] = a[0]
                for v in T.serial(WIDTH):
                    total[0] += a[v].astype("float32") * b[v].astype("float32")
                if ends and total[0] > 1e9:
                    break
            if kept:
                total[0] += a[0].astype("float32")
            out[t] = total[0]

    return kernel


def case(trips, dtype="float16"):
    rng = np.random.default_rng(3)
    x = rng.integers(-4, 5, (THREADS, trips * WIDTH)).astype(dtype)
    y = rng.integers(-4, 5, trips * WIDTH).astype(dtype)
    return x, y, np.arange(trips * WIDTH, dtype=np.int32)


def reads_in_a_row(kernel, given, dims) -> int:
    """How many vectors stand in front of a loop's first trip."""
    lowered = lower(elaborated(kernel, given, dims, {}, {}), SM90A)
    loops = [stmt for launch in lowered.launches for stmt in walk(launch.body) if type(stmt) is For]
    return max((sum(isinstance(each, ThreadVector) for each in loop.body) for loop in loops), default=0)


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("first", [0, 1, 3])
@pytest.mark.parametrize("trips", [1, 3, 8, 13])
def test_any_number_of_trips_comes_to_its_end(trips, first, inside):
    x, y, at = case(trips)
    expected = (x[:, first * WIDTH :].astype(np.float32) * y[first * WIDTH :]).sum(1)
    kernel, dims = dots(inside=inside), {"K": Guard(div=4)}
    agree(kernel, x, y, at, first, dims=dims, expected=expected, rtol=0, atol=0)
    assert reads_in_a_row(kernel, (x, y, at, first), dims) == 4


@pytest.mark.parametrize(("dtype", "reads"), [("float32", 2), ("float16", 4), ("int8", 8)])
def test_narrow_reads_go_further_ahead(dtype, reads):
    x, y, at = case(16, dtype)
    expected = (x.astype(np.float32) * y.astype(np.float32)).sum(1)
    agree(dots(dtype), x, y, at, 0, expected=expected, rtol=0, atol=0)
    assert reads_in_a_row(dots(dtype), (x, y, at, 0), None) == reads


@pytest.mark.parametrize("way", ["kept", "ends", "written", "listed"])
def test_what_trips_depend_on_stays_in_order(way):
    x, y, at = case(8)
    kernel = dots(**{way: True})
    agree(kernel, x, y, at, 0)
    assert reads_in_a_row(kernel, (x, y, at, 0), None) <= 1
