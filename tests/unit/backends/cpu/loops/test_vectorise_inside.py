"""Loops inside of a T.Parallel that take the lanes: which do, and that results are those of any order."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import tilec
import tilec.language as T
from tilec.backends.cpu.passes.loops.vectorise_inside import VectoriseInside
from tilec.backends.pipeline import lower
from tilec.ir.nodes import Parallel, walk
from tilec.language.frontend.elaborate import elaborate
from tilec.targets import parse_target, runs_here

ROWS = 24
RANDOM = np.random.default_rng(3)


def dots(kind=T.serial, dtype="float32"):
    """A row's product with a vector, and the most of the row."""
    k = T.dynamic("k")

    @T.prim_func
    def main(W: T.Tensor((ROWS, k), dtype), x: T.Tensor((k,), dtype), y: T.Tensor((ROWS,), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(ROWS):
                total = T.alloc_var("float32", init=0.0)
                most = T.alloc_var("float32", init=-T.infinity("float32"))
                for j in kind(k):
                    total += T.cast(W[i, j], "float32") * T.cast(x[j], "float32")
                    most = T.max(most, T.cast(W[i, j], "float32"))
                y[i] = total + most

    return main


def runs(step=1):
    """Runs of 8, each trip of its own elements; one of them in place."""

    @T.prim_func
    def main(x: T.Tensor((512,), "float32"), y: T.Tensor((512,), "float32"), z: T.Tensor((512,), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(64):
                for v in T.vectorized(8):
                    at = i * 8 + v
                    y[at] = x[i * 8 + v] + 1.0
                    z[i * 8 + v * step] = z[i * 8 + v * step] * 2.0

    return main


def carried():
    """A prefix sum: each trip reads what the last one wrote."""

    @T.prim_func
    def main(x: T.Tensor((64, 16), "float32"), y: T.Tensor((64, 16), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(64):
                y[i, 0] = x[i, 0]
                for v in T.serial(16):
                    if v > 0:
                        y[i, v] = y[i, v - 1] + x[i, v]

    return main


def columns():
    """Sums of columns: the iterations are the neighbours."""

    @T.prim_func
    def main(x: T.Tensor((64, 64), "float32"), y: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(64):
                total = T.alloc_var("float32", init=0.0)
                for v in T.serial(64):
                    total += x[v, i]
                y[i] = total

    return main


def warps():
    """Each warp has a row of its own, of which its threads take turns: threads are the neighbours."""
    n = T.dynamic("n")

    @T.prim_func
    def main(first: T.Tensor((9,), "int32"), x: T.Tensor((n,), "float32"), y: T.Tensor((256,), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(256):
                total = T.alloc_var("float32", init=0.0)
                row = i // 32
                for k in T.serial(T.ceildiv(first[row + 1] - first[row], 32)):
                    if first[row] + k * 32 + i % 32 < first[row + 1]:
                        total += x[first[row] + k * 32 + i % 32]
                y[i] = total

    return main


def groups():
    """Bytes in groups of 32 behind the bits of their scale: addresses are most of what is computed."""

    @T.prim_func
    def main(W: T.Tensor((16, 340), "uint8"), x: T.Tensor((320,), "float32"), y: T.Tensor((16,), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(16):
                total = T.alloc_var("float32", init=0.0)
                for g in T.serial(10):
                    low, high = T.cast(W[i, g * 34], "uint16"), T.cast(W[i, g * 34 + 1], "uint16")
                    scale = T.cast(T.reinterpret(low | (high << T.uint16(8)), "float16"), "float32")
                    part = T.alloc_var("float32", init=0.0)
                    for j in T.serial(32):
                        part += T.cast(T.cast(W[i, g * 34 + 2 + j], "int8"), "float32") * x[g * 32 + j]
                    total += scale * part
                y[i] = total

    return main


def small_products(depth):
    """A product of small matrices for each iteration."""

    @T.prim_func
    def main(
        A: T.Tensor((24, depth, depth), "float32"),
        B: T.Tensor((24, depth, depth), "float32"),
        C: T.Tensor((24, depth, depth), "float32"),
    ):
        with T.Kernel(1, threads=32):
            for g in T.Parallel(24):
                for i in T.serial(depth):
                    for j in T.serial(depth):
                        total = T.alloc_var("float32", init=0.0)
                        for k in T.serial(depth):
                            total += A[g, i, k] * B[g, k, j]
                        C[g, i, j] = total

    return main


def short_dots(length):
    """Sums of a few: up to four lie near to those of the next iteration, which are read along with them."""

    @T.prim_func
    def main(
        x: T.Tensor((64, length), "float32"),
        w: T.Tensor((64, length), "float32"),
        y: T.Tensor((64,), "float32"),
    ):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(64):
                total = T.alloc_var("float32", init=0.0)
                for k in T.serial(length):
                    total += x[i, k] * w[i, k]
                y[i] = total

    return main


def halves(reads=False):
    """Rows of nibbles, each half of a byte added up by a statement of its own, or read between."""

    @T.prim_func
    def main(W: T.Tensor((24, 32), "uint8"), x: T.Tensor((64,), "float32"), y: T.Tensor((24,), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(24):
                total = T.alloc_var("float32", init=0.0)
                last = T.alloc_var("float32", init=0.0)
                for j in T.serial(32):
                    both = T.cast(W[i, j], "int32")
                    total += T.cast(both & 15, "float32") * x[j]
                    so_far = total + 0.0 if reads else 0.0
                    high = T.cast(both >> 4, "float32")
                    total += high * x[32 + j]
                    if reads:
                        last = so_far
                y[i] = total - last

    return main


def nearest(rows, centers):
    """The centre that lies nearest to each row."""

    @T.prim_func
    def main(
        X: T.Tensor((rows, 20), "float32"),
        C: T.Tensor((centers, 20), "float32"),
        Y: T.Tensor((rows,), "int32"),
    ):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(rows):
                best = T.alloc_var("float32", init=1e30)
                at = T.alloc_var("int32", init=0)
                for k in T.serial(centers):
                    far = T.alloc_var("float32", init=0.0)
                    for d in T.serial(20):
                        far += T.abs(X[i, d] - C[k, d])
                    if far < best:
                        best = far
                        at = k
                Y[i] = at

    return main


def classes(rows, outputs, writes=False, found=False, dtype="float32"):
    """The first of the greatest products of each row, which may be looked up, with rows of weights."""

    @T.prim_func
    def main(
        X: T.Tensor((40, 20), dtype),
        at: T.Tensor((rows,), "int32"),
        W: T.Tensor((outputs, 20), dtype),
        Y: T.Tensor((rows,), "int32"),
    ):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(rows):
                most = T.alloc_var("float32", init=-1e30)
                for k in T.serial(outputs):
                    total = T.alloc_var("float32", init=0.0)
                    row = at[i] if found else i
                    for d in T.serial(20):
                        total += T.cast(X[row, d], "float32") * T.cast(W[k, d], "float32")
                    if total > most:
                        most = total
                        Y[i] = k
                        if writes:
                            X[i, 3] = T.cast(k, dtype)

    return main


def bits(kind, dtype):
    """The bits that all, some or an odd number of a row's numbers have, and their signs."""

    @T.prim_func
    def main(X: T.Tensor((20, 37), dtype), Y: T.Tensor((20,), dtype), Z: T.Tensor((20,), "uint64")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(20):
                found = T.alloc_var(dtype, init=kind == "and")
                signs = T.alloc_var("uint64", init=1 << 50)
                for j in T.serial(37):
                    if kind == "and":
                        found = found & X[i, j]
                    elif kind == "or":
                        found = X[i, j] | found
                    else:
                        found = found ^ X[i, j]
                    signs |= T.cast(X[i, j] < 0, "uint64") << T.cast(j, "uint64")
                Y[i] = found
                Z[i] = signs

    return main


def ragged():
    """Rows from one offset to the next: quotients by their largest element, and a sum that looks up."""
    n = T.dynamic("n")

    @T.prim_func
    def main(
        ends: T.Tensor((ROWS + 1,), "int32"),
        x: T.Tensor((n,), "float32"),
        at: T.Tensor((n,), "int32"),
        w: T.Tensor((50,), "float32"),
        y: T.Tensor((n,), "float32"),
        z: T.Tensor((ROWS,), "float32"),
    ):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(ROWS):
                most = T.alloc_var("float32", init=0.0)
                total = T.alloc_var("float32", init=0.0)
                for k in T.serial(ends[i], ends[i + 1]):
                    most = T.max(most, x[k])
                for k in T.serial(ends[i], ends[i + 1]):
                    total += x[k] * w[at[k]]
                for k in T.serial(ends[i], ends[i + 1]):
                    y[k] = x[k] / most
                z[i] = total

    return main


def lanes(function: Any) -> list[str]:
    """The variables of the Parallel loops that the pass leaves."""
    kernel = elaborate(function, name="kernel", dims={}, args={}, config={}, open_dims=True)
    made = VectoriseInside().apply(kernel, parse_target("x86-64-v3"))
    return [stmt.vars[-1].name for stmt in walk(made.body) if isinstance(stmt, Parallel)]


@pytest.mark.parametrize(
    ("function", "found"),
    [
        (dots(), ["j"]),
        (runs(), ["v"]),
        (runs(step=0), ["i"]),
        (carried(), ["i"]),
        (columns(), ["i"]),
        (warps(), ["i"]),
        (groups(), ["j"]),
        (small_products(3), ["j"]),
        (small_products(6), ["j"]),
        (short_dots(4), ["i"]),
        (short_dots(6), ["k"]),
        (halves(), ["j"]),
        (halves(reads=True), ["i"]),
        (nearest(16, 8), ["i"]),
        (nearest(8, 8), ["d"]),
        (nearest(16, 7), ["d"]),
        (classes(24, 9), ["i"]),
        (bits("or", "int32"), ["j"]),
        (classes(24, 9, found=True), ["i"]),
        (classes(24, 9, writes=True), ["d"]),
        (ragged(), ["k_trip", "k_trip", "k_trip"]),
    ],
)
def test_which_loops_take_the_lanes(function, found):
    assert lanes(function) == found


@pytest.mark.parametrize(("shift", "back"), [(0, 0), (-3, 0), (3, 0), (0, 50)])
def test_rows_from_one_offset_to_the_next(shift, back):
    """Of any length; where offsets lie outside of the tensor there are zeros, and rows that end in front of
    where they begin are empty (the next ones share elements with others, so that sums alone are compared)."""
    lengths = RANDOM.integers(0, 40, ROWS)
    ends = np.append(np.zeros(1), lengths.cumsum()).astype(np.int32)
    size = int(ends[-1])
    ends[1:-1:5] -= back
    ends += shift
    x = RANDOM.random(size, dtype=np.float32) + 1
    at, w = RANDOM.integers(-9, 60, size, dtype=np.int32), RANDOM.random(50, dtype=np.float32)
    y, z = np.zeros(size, np.float32), np.zeros(ROWS, np.float32)
    tilec.compile(ragged(), target="cpu")(ends, x, at, w, y, z)
    wanted, sums = np.zeros(size, np.float32), np.zeros(ROWS, np.float32)
    for row, (first, last) in enumerate(pairwise(ends)):
        there = np.arange(max(first, 0), min(last, size))
        found = np.where((at[there] >= 0) & (at[there] < 50), w[np.clip(at[there], 0, 49)], 0)
        sums[row] = x[there] @ found
        wanted[there] = x[there] / x[there].max(initial=0)
    np.testing.assert_allclose(z, sums, rtol=1e-4, atol=1e-4)
    if not back:
        np.testing.assert_allclose(y, wanted, rtol=1e-6)


@pytest.mark.parametrize("kind", [T.serial, T.unroll])
@pytest.mark.parametrize("depth", [1, 7, 50, 200])
def test_sums_of_rows(kind, depth):
    W, x = (RANDOM.standard_normal(shape, dtype=np.float32) for shape in ((ROWS, depth), (depth,)))
    y = np.zeros(ROWS, np.float32)
    tilec.compile(dots(kind), target="cpu")(W, x, y)
    np.testing.assert_allclose(y, W @ x + W.max(1), rtol=1e-4, atol=1e-4)


def test_runs():
    x, z = (RANDOM.standard_normal(512, dtype=np.float32) for _ in range(2))
    y, was = np.zeros(512, np.float32), z.copy()
    tilec.compile(runs(), target="cpu")(x, y, z)
    np.testing.assert_array_equal(y, x + 1)
    np.testing.assert_array_equal(z, was * 2)


def test_what_trips_hand_on():
    x = RANDOM.standard_normal((64, 16), dtype=np.float32)
    y = np.zeros_like(x)
    tilec.compile(carried(), target="cpu")(x, y)
    np.testing.assert_allclose(y, np.cumsum(x, 1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("depth", [3, 6, 7])
def test_small_products(depth):
    A, B = (RANDOM.standard_normal((24, depth, depth), dtype=np.float32) for _ in range(2))
    C = np.zeros_like(A)
    tilec.compile(small_products(depth), target="cpu")(A, B, C)
    np.testing.assert_allclose(C, A @ B, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("reads", [False, True])
def test_halves(reads):
    W, x = RANDOM.integers(0, 256, (24, 32), dtype=np.uint8), RANDOM.standard_normal(64, dtype=np.float32)
    y = np.zeros(24, np.float32)
    tilec.compile(halves(reads), target="cpu")(W, x, y)
    low, high = (half.astype(np.float32) for half in (W & 15, W >> 4))
    wanted = high[:, 31] * x[63] if reads else low @ x[:32] + high @ x[32:]
    np.testing.assert_allclose(y, wanted, rtol=1e-3, atol=1e-3)


def test_groups():
    W = RANDOM.integers(0, 256, (16, 10, 34), dtype=np.uint8)
    scales = RANDOM.random((16, 10)).astype(np.float16)
    W[:, :, :2] = scales.view(np.uint8).reshape(16, 10, 2)
    x, y = RANDOM.standard_normal(320, dtype=np.float32), np.zeros(16, np.float32)
    tilec.compile(groups(), target="cpu")(W.reshape(16, 340), x, y)
    numbers = W[:, :, 2:].view(np.int8).astype(np.float32) * scales.astype(np.float32)[:, :, None]
    np.testing.assert_allclose(y, numbers.reshape(16, 320) @ x, rtol=1e-4, atol=1e-2)


def windows(rows, outputs, channels=None, rim=0, dtype="float32"):
    """Sums of windows whose weights have the channels last, and the most of each window."""
    depth = T.dynamic("depth") if channels is None else channels
    wide = rows + 2 - 2 * rim

    @T.prim_func
    def main(
        X: T.Tensor((wide, wide, depth), dtype),
        W: T.Tensor((outputs, 3, 3, depth), dtype),
        Y: T.Tensor((rows, rows, outputs), "float32"),
    ):
        with T.Kernel(rows, threads=32) as y:
            for x, o in T.Parallel(rows, outputs):
                total = T.alloc_var("float32", init=0.0)
                for a, b in T.grid(3, 3):
                    if y + a >= rim and y + a < wide + rim and x + b >= rim and x + b < wide + rim:
                        for c in T.serial(depth):
                            total += T.cast(X[y + a - rim, x + b - rim, c] * W[o, a, b, c], "float32")
                Y[y, x, o] = total

    return main


def rows_of_a_tile(dtype="float32"):
    """Sums of a tile along rows of a tensor, with the loop along them around the tile."""

    @T.prim_func
    def main(A: T.Tensor((32,), dtype), B: T.Tensor((16, 32), dtype), Y: T.Tensor((16,), "float32")):
        with T.Kernel(1, threads=32):
            acc = T.alloc_fragment((16,), "float32")
            T.clear(acc)
            for w in T.serial(32):
                for j in T.Parallel(16):
                    acc[j] += T.cast(A[w] * B[j, w], "float32")
            T.copy(acc, Y)

    return main


def loops(function: Any, target: str) -> list[tuple[int, int]]:
    """How many axes each Parallel has that the pass leaves, and how many sums."""
    kernel = elaborate(function, name="kernel", dims={}, args={}, config={}, open_dims=True)
    made = VectoriseInside().apply(kernel, parse_target(target))
    return [(len(stmt.vars), len(stmt.body)) for stmt in walk(made.body) if isinstance(stmt, Parallel)]


@pytest.mark.parametrize(
    ("function", "target", "found"),
    [
        (windows(4, 8, 16), "x86-64-v4", [(3, 8)]),
        (windows(4, 8, 16), "x86-64-v3", [(3, 8)]),
        (windows(4, 8), "x86-64-v4", [(3, 4)]),
        (windows(5, 7, 16), "x86-64-v4", [(3, 8), (3, 4), (3, 6), (3, 3)]),
        (windows(6, 8, 16, rim=1), "x86-64-v4", [(1, 4)]),
        (nearest(8, 3), "x86-64-v4", [(1, 4)]),
        (dots(), "x86-64-v4", [(1, 4)]),
    ],
)
def test_iterations_at_a_time(function, target, found):
    assert sorted(loops(function, target)) == sorted(found)


@pytest.mark.parametrize("target", ["x86-64-v4", "x86-64-v3"])
@pytest.mark.parametrize(
    ("rows", "outputs", "channels", "rim", "dtype"),
    [
        (4, 8, 16, 0, "float32"),
        (5, 7, 19, 0, "float32"),
        (5, 7, None, 0, "float32"),
        (6, 5, 33, 1, "float32"),
        (4, 4, 40, 0, "int32"),
    ],
)
def test_windows(rows, outputs, channels, rim, dtype, target):
    if not runs_here(parse_target(target)):
        pytest.skip(f"this machine does not run {target}")
    wide, depth = rows + 2 - 2 * rim, channels or 21
    X, W = (
        RANDOM.integers(-5, 6, shape).astype(dtype) for shape in ((wide, wide, depth), (outputs, 3, 3, depth))
    )
    Y = np.full((rows, rows, outputs), np.nan, np.float32)
    tilec.compile(windows(rows, outputs, channels, rim, dtype), target=target)(X, W, Y)
    around = np.lib.stride_tricks.sliding_window_view(
        np.pad(X, ((rim, rim), (rim, rim), (0, 0))), (3, 3), (0, 1)
    )
    np.testing.assert_array_equal(Y, np.einsum("yxcab,oabc->yxo", around, W))


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_rows_of_a_tile(dtype):
    target = parse_target("x86-64-v3")
    kernel = elaborate(rows_of_a_tile(dtype), name="kernel", dims={}, args={}, config={}, open_dims=True)
    loops = [stmt.vars[-1].name for stmt in walk(lower(kernel, target).body) if isinstance(stmt, Parallel)]
    assert "w" in loops
    assert "j" not in loops
    A, B = (RANDOM.integers(0, 9, shape).astype(dtype) for shape in ((32,), (16, 32)))
    Y = np.full(16, np.nan, np.float32)
    tilec.compile(rows_of_a_tile(dtype), target="cpu")(A, B, Y)
    np.testing.assert_array_equal(Y, (A * B).astype(np.float32).sum(1))


@pytest.mark.parametrize(("rows", "centers"), [(13, 6), (37, 9)])
def test_nearest(rows, centers):
    X, C = (RANDOM.standard_normal((count, 20), dtype=np.float32) for count in (rows, centers))
    Y = np.full(rows, -1, np.int32)
    tilec.compile(nearest(rows, centers), target="cpu")(X, C, Y)
    np.testing.assert_array_equal(Y, np.abs(X[:, None] - C).sum(2).argmin(1))


@pytest.mark.parametrize(("found", "writes", "dtype"), [(0, 0, "int8"), (1, 0, "float32"), (0, 1, "float32")])
def test_classes(found, writes, dtype):
    """Of 45 rows the last five are behind the tensor, and zero."""
    X, W = (RANDOM.integers(-9, 10, (count, 20)).astype(dtype) for count in (40, 9))
    at, Y = RANDOM.integers(0, 60, 45).astype(np.int32), np.full(45, -1, np.int32)
    rows = np.concatenate([X, np.zeros((20, 20), dtype)]).astype(np.float32)
    scores = rows[at if found else np.arange(45)] @ W.T.astype(np.float32)
    if writes:
        scores = _with_third_renewed(rows[:45].copy(), W)
    tilec.compile(classes(45, 9, writes, found, dtype), target="cpu")(X, at, W, Y)
    np.testing.assert_array_equal(Y, scores.argmax(1))


def _with_third_renewed(rows, W):
    """The scores of `classes`, of which a new greatest one becomes an element of its row."""
    scores = np.zeros((len(rows), len(W)), np.float32)
    for row, (x, made) in enumerate(zip(rows, scores, strict=True)):
        for k, w in enumerate(W):
            made[k] = x @ w
            if made[k] > made[:k].max(initial=-np.inf) and row < 40:
                x[3] = k
    return scores


@pytest.mark.parametrize("kind", ["and", "or", "xor"])
@pytest.mark.parametrize("dtype", ["int32", "uint8", "int64", "bool"])
def test_bits(kind, dtype):
    X = RANDOM.integers(-50 if dtype.startswith("int") else 0, 2 if dtype == "bool" else 100, (20, 37))
    X = X.astype(dtype)
    Y, Z = np.zeros(20, dtype), np.zeros(20, np.uint64)
    tilec.compile(bits(kind, dtype), target="cpu")(X, Y, Z)
    wanted = getattr(np, f"bitwise_{kind}").reduce(X, 1)
    np.testing.assert_array_equal(Y, wanted & X.dtype.type(1) if kind == "and" else wanted)
    signs = (X < 0).astype(np.uint64) << np.arange(37, dtype=np.uint64)
    np.testing.assert_array_equal(Z, signs.sum(1) | np.uint64(1 << 50))


def alone():
    """A block for each row, whose loops stand outside of any T.Parallel: a sum, one that a later loop reads,
    and one whose trips go on from each other."""
    n = T.dynamic("n")

    @T.prim_func
    def main(x: T.Tensor((ROWS, n), "float32"), y: T.Tensor((ROWS,), "float32")):
        with T.Kernel(ROWS, threads=32) as row:
            most = T.alloc_var("float32", init=-T.infinity("float32"))
            for j in T.serial(n):
                most = T.max(most, x[row, j])
            total = T.alloc_var("float32", init=0.0)
            for j in T.serial(n):
                total += T.exp(x[row, j] - most)
            last = T.alloc_var("float32", init=0.0)
            for j in T.serial(n):
                last = last * 0.5 + x[row, j]
            y[row] = total + last

    return main


def test_loops_of_a_block_itself():
    kernel = elaborate(alone(), name="kernel", dims={}, args={}, config={}, open_dims=True)
    target = parse_target("x86-64-v4")
    loops = [
        stmt for stmt in walk(VectoriseInside().apply(kernel, target).body) if isinstance(stmt, Parallel)
    ]
    assert len(loops) == 2


@pytest.mark.parametrize("n", [1, 7, 16, 61, 130])
def test_loops_of_a_block_itself_are_right(n):
    x, y = RANDOM.standard_normal((ROWS, n), dtype=np.float32), np.zeros(ROWS, np.float32)
    tilec.compile(alone(), target="cpu")(x, y)
    last = np.zeros(ROWS, np.float32)
    for j in range(n):
        last = last * np.float32(0.5) + x[:, j]
    np.testing.assert_allclose(y, np.exp(x - x.max(1, keepdims=True)).sum(1) + last, rtol=1e-4, atol=1e-4)
