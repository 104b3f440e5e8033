"""Loops of which an iteration needs every second trip, or fewer: which trips they have, and their results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_joined import RANDOM

import tilec
import tilec.language as T
from tilec.backends.cpu.emit.loops.splits.residues import by_residue
from tilec.ir.analysis.known_trips import known_trips
from tilec.ir.exprs import int_value
from tilec.ir.nodes import For, Parallel, walk
from tilec.language.frontend.elaborate import elaborate
from tilec.lowering.analysis.facts import Facts


def transposed(size, taps, step, pad, block=64):
    """A transposed convolution of rows: each element gathers what lies a multiple of ``step`` away."""
    length = (size - 1) * step + taps - 2 * pad

    @T.prim_func
    def main(
        X: T.Tensor((8, size), "float32"),
        W: T.Tensor((8, taps), "float32"),
        Y: T.Tensor((length,), "float32"),
    ):
        with T.Kernel(T.ceildiv(length, block), threads=32) as bx:
            for i in T.Parallel(block):
                total = T.alloc_var("float32", init=0.0)
                for c, k in T.grid(8, taps):
                    p = bx * block + i + pad - k
                    if p >= 0 and p % step == 0 and p // step < size:
                        total += X[c, p // step] * W[c, k]
                if bx * block + i < length:
                    Y[bx * block + i] = total

    return main


def plane(size, taps):
    """A transposed convolution of a plane, channels last, added up in a tile."""
    length = (size - 1) * 2 + taps - 2

    @T.prim_func
    def main(
        X: T.Tensor((size, size, 4), "float32"),
        W: T.Tensor((taps, taps, 4, 16), "float32"),
        Y: T.Tensor((length, length, 16), "float32"),
    ):
        with T.Kernel(length, threads=32) as y:
            acc = T.alloc_fragment((length, 16), "float32")
            T.clear(acc)
            for ky, kx, c in T.grid(taps, taps, 4):
                for x, o in T.Parallel(length, 16):
                    sy, sx = y + 1 - ky, x + 1 - kx
                    inside = sy >= 0 and sx >= 0 and sy // 2 < size and sx // 2 < size
                    if sy % 2 == 0 and sx % 2 == 0 and inside:
                        acc[x, o] += X[sy // 2, sx // 2, c] * W[ky, kx, c, o]
            T.copy(acc, Y[y, 0, 0])

    return main


def phases(step, taps):
    """Samples between those of a row, by the taps of their phase; odd ones are taken off."""

    @T.prim_func
    def main(
        X: T.Tensor((64 + taps,), "float32"),
        W: T.Tensor((step, taps), "float32"),
        Y: T.Tensor((64 * step,), "float32"),
    ):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(64 * step):
                total = T.alloc_var("float32", init=0.0)
                if i % step == 1:
                    for k in T.serial(taps):
                        total -= X[i // step + k] * W[1, k]
                else:
                    for k in T.serial(taps):
                        total += X[i // step + k] * W[i % step, k]
                Y[i] = total

    return main


def trips(function: Any) -> list[tuple[int | None, list[int | None]]]:
    """How many iterations each part of the first Parallel has, and trips each loop in it."""
    kernel = elaborate(function, name="kernel", dims={}, args={}, config={}, open_dims=True)
    loop = next(stmt for stmt in walk(kernel.body) if isinstance(stmt, Parallel))
    ctx: Any = type("Context", (), {"facts": Facts(kernel)})
    parts = by_residue(loop, len(loop.vars) - 1, ctx)
    loops = [[stmt for stmt in walk(part.body) if isinstance(stmt, For)] for part in parts]
    counts = [
        [None if (range_ := known_trips(each)) is None else len(range_) for each in some] for some in loops
    ]
    return [(int_value(part.extents[-1]), found) for part, found in zip(parts, counts, strict=True)]


@pytest.mark.parametrize(
    ("function", "found"),
    [
        (transposed(40, 4, 2, 1), [(32, [8, 2]), (32, [8, 2])]),
        (transposed(40, 5, 3, 1, 48), [(16, [8, 2]), (16, [8, 1]), (16, [8, 2])]),
        (transposed(40, 5, 3, 1), [(22, [8, 5]), (21, [8, 5]), (21, [8, 5])]),
        (transposed(40, 4, 1, 1), [(64, [8, 4])]),
        (transposed(40, 12, 9, 1), [(64, [8, 12])]),
        (phases(2, 3), [(64, [3, 3]), (64, [3, 3])]),
    ],
)
def test_parts_and_their_trips(function, found):
    assert trips(function) == found


@pytest.mark.parametrize(
    ("size", "taps", "step", "pad", "block"),
    [(40, 4, 2, 1, 64), (33, 5, 3, 2, 48), (33, 5, 3, 2, 50), (20, 2, 4, 0, 64), (20, 8, 4, 2, 64)],
)
def test_transposed_rows(size, taps, step, pad, block):
    X, W = (RANDOM.standard_normal(shape, dtype=np.float32) for shape in ((8, size), (8, taps)))
    spread = np.zeros((8, (size - 1) * step + 1), np.float32)
    spread[:, ::step] = X
    whole = sum(np.convolve(row, taps_) for row, taps_ in zip(spread, W, strict=True))
    Y = np.zeros(len(whole) - 2 * pad, np.float32)
    tilec.compile(transposed(size, taps, step, pad, block), target="cpu")(X, W, Y)
    np.testing.assert_allclose(Y, whole[pad : pad + len(Y)], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("taps", [3, 4])
def test_transposed_planes(taps):
    size = 9
    X, W = (
        RANDOM.standard_normal(shape, dtype=np.float32) for shape in ((size, size, 4), (taps, taps, 4, 16))
    )
    whole = np.zeros((2 * size + taps - 2, 2 * size + taps - 2, 16), np.float32)
    for ky, kx in np.ndindex(taps, taps):
        whole[ky : ky + 2 * size - 1 : 2, kx : kx + 2 * size - 1 : 2] += X @ W[ky, kx]
    length = (size - 1) * 2 + taps - 2
    Y = np.zeros((length, length, 16), np.float32)
    tilec.compile(plane(size, taps), target="cpu")(X, W, Y)
    np.testing.assert_allclose(Y, whole[1 : length + 1, 1 : length + 1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("step", [2, 3])
def test_phases(step):
    X, W = (RANDOM.standard_normal(shape, dtype=np.float32) for shape in ((67,), (step, 3)))
    Y = np.zeros(64 * step, np.float32)
    tilec.compile(phases(step, 3), target="cpu")(X, W, Y)
    windows = np.lib.stride_tricks.sliding_window_view(X, 3)[:64] @ W.T
    windows[:, 1] *= -1
    np.testing.assert_allclose(Y, windows.ravel(), rtol=1e-4, atol=1e-4)
