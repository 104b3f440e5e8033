"""Serial loops on GPUs that read a trip ahead what they want of tensors."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, elaborated

import tilec.language as T
from tilec.backends.cuda.nodes import AheadLoop
from tilec.backends.pipeline import lower
from tilec.ir.guards import Guard
from tilec.ir.nodes import walk
from tilec.targets import parse_target

STEPS, ROWS, SIZE = 6, 8, 64
SM90A = parse_target("sm_90a")


def scan(dtype="float16", written=False, branch=False):
    """A state that decays and grows, its sums of rows after every step, and rows that a list names."""

    @T.prim_func
    def kernel(
        X: T.Tensor((STEPS * ROWS, SIZE), dtype),
        decay: T.Tensor((STEPS * ROWS,), "float32"),
        place: T.Tensor((STEPS * ROWS,), "int32"),
        begin: T.Tensor((1,), "int32"),
        sums: T.Tensor((STEPS * ROWS,), "float32"),
        out: T.Tensor((ROWS, SIZE), "float32"),
        ends: T.int32,
    ):
        with T.Kernel(1, threads=64):
            state = T.alloc_fragment((ROWS, SIZE), "float32")
            total = T.alloc_fragment((ROWS,), "float32")
            T.clear(state)
            for m in T.serial(begin[0], ends):
                for i, j in T.Parallel(ROWS, SIZE):
                    state[i, j] = state[i, j] * decay[m * ROWS + i] + X[m * ROWS + i, j].astype("float32")
                    if branch and decay[m * ROWS + i] > 0.5:
                        state[i, j] += X[place[m * ROWS + i], j].astype("float32")
                T.reduce_sum(state, total, dim=1)
                for i in T.Parallel(ROWS):
                    sums[m * ROWS + i] = total[i]
                if written:
                    for i in T.Parallel(ROWS):
                        decay[m * ROWS + ROWS - i - 1] = total[i]
            T.copy(state, out)

    return kernel


def case(branch=False):
    rng = np.random.default_rng(7)
    x = (rng.standard_normal((STEPS * ROWS, SIZE)) / 4).astype(np.float16)
    decay = rng.random(STEPS * ROWS).astype(np.float32)
    place = rng.permutation(STEPS * ROWS).astype(np.int32)
    state, sums = np.zeros((ROWS, SIZE), np.float32), np.zeros(STEPS * ROWS, np.float32)
    for m in range(STEPS):
        rows = slice(m * ROWS, (m + 1) * ROWS)
        state = state * decay[rows, None] + x[rows]
        if branch:
            state += np.where(decay[rows, None] > 0.5, x[place[rows]], np.float32(0))
        sums[rows] = state.sum(1)
    return (x, decay, place, np.array([0], np.int32), STEPS), (sums, state)


@pytest.mark.parametrize("branch", [False, True])
def test_a_scan_is_right(branch):
    inputs, expected = case(branch)
    agree(scan(branch=branch), *inputs, expected=expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({}, ["X", "decay"]),
        ({"branch": True}, ["X", "decay"]),
        ({"written": True}, ["X"]),
        ({"dtype": "float8_e4m3fn"}, ["decay"]),
    ],
    ids=str,
)
def test_what_nothing_writes_is_read_ahead(given, names):
    """Not the list of places, as the branch reads it; nor elements of one byte."""
    inputs, _ = case()
    x, *rest = inputs
    made = lower(elaborated(scan(**given), (x, *rest), None, {}, {}), SM90A)
    loops = [stmt for stmt in walk(made.launches[0].body) if isinstance(stmt, AheadLoop)]
    assert sorted({str(loop.body[0].value.source.name) for loop in loops}) == names


@pytest.mark.parametrize(
    ("threads", "trips", "places"), [(64, 100, 16), (512, 100, 8), (1024, 100, 4), (64, 5, 5), (64, 37, 16)]
)
def test_as_many_trips_are_read_ahead_as_keep_memory_busy(threads, trips, places):
    """Of one float a thread; no more than there are."""

    @T.prim_func
    def kernel(X: T.Tensor((trips, threads), "float32"), out: T.Tensor((threads,), "float32")):
        with T.Kernel(1000, threads=threads):
            mean, most = T.alloc_fragment((threads,), "float32"), T.alloc_fragment((threads,), "float32")
            T.clear(mean)
            T.clear(most)
            for m in T.serial(trips):
                for i in T.Parallel(threads):
                    mean[i] = mean[i] * 0.5 + X[m, i]
                for i in T.Parallel(threads):
                    most[i] = T.max(most[i], mean[i])
            T.copy(most, out)

    x = np.random.default_rng(1).standard_normal((trips, threads)).astype(np.float32)
    made = lower(elaborated(kernel, (x,), None, {}, {}), SM90A)
    loops = [stmt for stmt in walk(made.launches[0].body) if isinstance(stmt, AheadLoop)]
    assert {int(loop.body[0].buffer.shape[0]) for loop in loops} == {places}
    mean, most = np.zeros(threads, np.float32), np.zeros(threads, np.float32)
    for row in x:
        mean = mean * np.float32(0.5) + row
        most = np.maximum(most, mean)
    agree(kernel, x, expected=most, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("rows", "names"), [(Guard(), ["X"]), (Guard(min=1, max=24), [])], ids=str)
def test_loops_of_few_trips_wait(rows, names):
    def factory(M):
        @T.prim_func
        def kernel(X: T.Tensor((M, SIZE), "float32"), out: T.Tensor((SIZE,), "float32")):
            with T.Kernel(1, threads=64):
                x, total = T.alloc_fragment((ROWS, SIZE), "float32"), T.alloc_fragment((SIZE,), "float32")
                T.clear(total)
                for m in T.serial(T.ceildiv(M, ROWS)):
                    T.copy(X[m * ROWS, 0], x)
                    T.reduce_sum(x, total, dim=0, clear=False)
                T.copy(total, out)

        return kernel

    x = np.random.default_rng(1).standard_normal((21, SIZE)).astype(np.float32)
    dims = {"M": rows}
    made = lower(elaborated(factory, (x,), dims, {}, {}), SM90A)
    loops = [stmt for stmt in walk(made.launches[0].body) if isinstance(stmt, AheadLoop)]
    assert sorted({str(loop.body[0].value.source.name) for loop in loops}) == names
    agree(factory, x, dims=dims, expected=x.sum(0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("columns", "names"), [(SIZE, []), (SIZE - 8, ["X"])])
def test_a_single_loop_reads_ahead_where_threads_have_places_behind_its_end(columns, names):
    """Compilers move reads of whole tiles by themselves."""

    @T.prim_func
    def kernel(X: T.Tensor((STEPS, ROWS, columns), "float16"), out: T.Tensor((ROWS, columns), "float32")):
        with T.Kernel(1, threads=64):
            total = T.alloc_fragment((ROWS, columns), "float32")
            T.clear(total)
            for m in T.serial(STEPS):
                for i, j in T.Parallel(ROWS, columns):
                    total[i, j] += X[m, i, j].astype("float32")
            T.copy(total, out)

    x = np.random.default_rng(1).standard_normal((STEPS, ROWS, columns)).astype(np.float16)
    made = lower(elaborated(kernel, (x,), None, {}, {}), SM90A)
    loops = [stmt for stmt in walk(made.launches[0].body) if isinstance(stmt, AheadLoop)]
    assert sorted({str(loop.body[0].value.source.name) for loop in loops}) == names
    agree(kernel, x, expected=x.astype(np.float32).sum(0), rtol=1e-5, atol=1e-5)
