"""Rows that begin and end anywhere in memory: the same on every road, by vectors on a GPU."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, elaborated

import tilec.language as T
from tilec.backends.cuda.nodes import RaggedThreadLoop
from tilec.backends.pipeline import lower
from tilec.ir.guards import Guard
from tilec.ir.nodes import Launch, walk
from tilec.targets import parse_target

SM80 = parse_target("sm_80")
OPEN = {"M": Guard(), "N": Guard(), "ldx": Guard()}
RNG = np.random.default_rng(0)


def scaled(M, N, ldx, dtype="float16", rows=2, bN=4096, threads=64):
    """Rows less their maximum, times a factor of the column."""

    @T.prim_func
    def main(
        X: T.StridedTensor((M, N), (ldx, 1), dtype), G: T.Tensor((N,), dtype), Y: T.Tensor((M, N), dtype)
    ):
        with T.Kernel(T.ceildiv(M, rows), threads=threads) as b:
            x, top = T.alloc_fragment((rows, bN), "float32"), T.alloc_fragment((rows,), "float32")
            for c in T.serial(T.ceildiv(N, bN)):
                T.copy(X[b * rows, c * bN], x)
                T.reduce_max(x, top, dim=1)
                for i, j in T.Parallel(rows, bN):
                    Y[b * rows + i, c * bN + j] = (x[i, j] - top[i]) * G[c * bN + j]

    return main


def shifted_stores(M, N, ldx, dtype="float16", bN=4096, threads=64):
    """Two tensors whose rows begin at other elements of a vector."""

    @T.prim_func
    def main(X: T.Tensor((M, N), dtype), Y: T.Tensor((M, N), dtype), Z: T.Tensor((M, ldx), dtype)):
        with T.Kernel(M, threads=threads) as b:
            for j in T.Parallel(bN):
                Y[b, j] = X[b, j]
                Z[b, j] = X[b, j]

    return main


def kept(M, N, ldx, dtype="float16", rows=2, bN=256, threads=32):
    """Rows of up to bN columns, and what each is with a factor of the row."""

    @T.prim_func
    def main(
        X: T.StridedTensor((M, N), (ldx, 1), dtype),
        S: T.Tensor((M,), "int32"),
        Y: T.Tensor((M, N), dtype),
        Z: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(T.ceildiv(M, rows), threads=threads) as b:
            x = T.alloc_fragment((rows, bN), dtype)
            T.copy(X[b * rows, 0], x)
            T.copy(x, Y[b * rows, 0])
            for i, j in T.Parallel(rows, bN):
                Z[b * rows + i, j] = T.cast(x[i, j], "float32") * S[b * rows + i]

    return main


def below(X: np.ndarray, G: np.ndarray, bN: int = 4096) -> np.ndarray:
    """NumPy twin of `scaled`."""
    parts = []
    for start in range(0, X.shape[1], bN):
        part = X[:, start : start + bN].astype(np.float32)
        top = part.max(axis=1, keepdims=True)
        top = np.maximum(top, 0) if part.shape[1] < bN else top
        parts.append((part - top) * G[start : start + bN].astype(np.float32))
    return np.concatenate(parts, axis=1).astype(X.dtype)


def ragged(made) -> list[RaggedThreadLoop]:
    return [stmt for stmt in walk(lower(made, SM80).body) if isinstance(stmt, RaggedThreadLoop)]


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize(
    ("rows", "columns", "pitch"), [(3, 513, 513), (3, 4103, 4110), (2, 7, 7), (2, 600, 603)]
)
def test_rows_of_any_length_and_pitch(dtype, rows, columns, pitch):
    X = RNG.standard_normal((rows, pitch)).astype(dtype)[:, :columns]
    G = RNG.standard_normal(columns).astype(dtype)
    agree(scaled, X, G, dims=OPEN, args={"dtype": dtype}, expected=below(X, G), targets=("sm_80", "sm_90a"))


def test_columns_are_shifted_alike_in_all_loops_of_a_fragment():
    X, G = np.zeros((4, 520), np.float16), np.zeros(520, np.float16)
    found = ragged(elaborated(scaled, (X, G), OPEN, {}, {}))
    assert [loop.vector for loop in found] == [8, 8]
    assert all(str(loop.vars[-1].name).endswith("_place") for loop in found)


def test_rows_that_begin_at_vectors_are_not_shifted():
    X, G = np.zeros((4, 520), np.float16), np.zeros(520, np.float16)
    dims = {"M": Guard(), "N": Guard(div=8), "ldx": Guard()}
    found = ragged(elaborated(scaled, (X, G), dims, {}, {}))
    assert found
    assert not any(str(loop.vars[-1].name).endswith("_place") for loop in found)
    dims["ldx"] = Guard(div=8)
    assert not ragged(elaborated(scaled, (X, G), dims, {}, {}))


def test_stores_that_begin_apart_stay_as_they_are():
    X = np.zeros((4, 500), np.float16)
    assert not ragged(elaborated(shifted_stores, (X,), {"M": 4, "N": Guard(), "ldx": Guard()}, {}, {}))


def guarded(M, N, dtype="float16", bN=4096, threads=64, less=0):
    """Columns in front of the last ``less`` ones, each less a number, with one of the row marked."""

    @T.prim_func
    def main(
        X: T.Tensor((M, N), dtype), L: T.Tensor((M,), "int64"), S: T.Tensor((M,), dtype),
        Y: T.Tensor((M, N), dtype),
    ):  # fmt: skip
        with T.Kernel(M, threads=threads) as b:
            for c in T.serial(T.ceildiv(N, bN)):
                for j in T.Parallel(bN):
                    if c * bN + j < N - less:
                        p = X[b, c * bN + j] - S[b]
                        Y[b, c * bN + j] = p - T.if_then_else(L[b] == c * bN + j, 1.0, 0.0)

    return main


def test_a_test_that_stores_repeat_keeps_no_loop_from_vectors():
    X, S = RNG.integers(-9, 9, (3, 4103)).astype(np.float16), np.array([1, 2, 3], np.float16)
    L = np.array([0, 4102, 77])
    dims = {"M": Guard(), "N": Guard()}
    expected = X - S[:, None]
    expected[np.arange(3), L] -= 1
    agree(guarded, X, L, S, dims=dims, expected=expected, targets=("sm_80", "sm_90a"))
    (found,) = ragged(elaborated(guarded, (X, L, S), dims, {}, {}))
    assert found.vector == 8
    assert not ragged(elaborated(guarded, (X, L, S), dims, {"less": 5}, {}))


# ---- phase = true: vectors at the ends of rows are read whole and cut ----

PHASE = {"phase": True}


@pytest.mark.parametrize(
    ("dtype", "rows", "columns", "pitch"),
    [
        ("float16", 5, 253, 253),  # to the end of tiles
        ("float16", 4, 256, 259),  # of other phases
        ("float16", 3, 201, 217),  # of the same ones
        ("float16", 3, 5, 5),  # less than a vector
        ("float32", 3, 255, 259),
        ("int8", 3, 249, 249),
        ("int8", 3, 199, 215),
    ],
)
def test_ends_of_short_rows_are_cut(dtype, rows, columns, pitch):
    X = (20 * RNG.standard_normal((rows, pitch))).astype(dtype)[:, :columns]
    S = np.arange(1, rows + 1, dtype=np.int32)
    expected = [np.ascontiguousarray(X), X.astype(np.float32) * S[:, None]]
    args = {"dtype": dtype}
    agree(kept, X, S, dims=OPEN, args=args, config=PHASE, expected=expected, targets=("sm_80",))


@pytest.mark.parametrize(("columns", "pitch"), [(4103, 4111), (4095, 4095)])
def test_ends_of_rows_in_chunks_are_cut(columns, pitch):
    X = RNG.standard_normal((3, pitch)).astype(np.float16)[:, :columns]
    G = RNG.standard_normal(columns).astype(np.float16)
    agree(scaled, X, G, dims=OPEN, config=PHASE, expected=below(X, G), targets=("sm_90a",))


def test_short_rows_move_in_vectors_where_that_is_asked_for():
    arrays = np.zeros((4, 200), np.float16), np.zeros(4, np.int32)
    assert not ragged(elaborated(kept, arrays, OPEN, {}, {}))
    found = ragged(elaborated(kept, arrays, OPEN, {}, PHASE))
    assert [(loop.vector, loop.cut) for loop in found] == [(8, True)] * 3


def test_a_launch_that_phase_does_nothing_for_says_so():
    arrays, dims = (np.zeros((4, 200), np.float16), np.zeros(4, np.int32)), {**OPEN, "N": Guard(div=8)}
    made = lower(elaborated(kept, arrays, {**dims, "ldx": Guard(div=8)}, {}, PHASE), SM80)
    [launch] = (stmt for stmt in walk(made.body) if isinstance(stmt, Launch))
    assert [note for note in launch.notes if note.startswith("phase = True has no effect")]
