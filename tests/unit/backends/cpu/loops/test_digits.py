"""Lanes whose elements, shifts and choices follow from digits of the loop's variable."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import Library

from tilec.backends.cpu.codegen.objects import tir_text
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.ir.text.parser import parse_kernel
from tilec.targets import parse_target

TEXT = """
kernel("{name}")
X = tensor(uint8, (4, 256), ("4", "256"), access="in")
I = tensor(int32, (4,), ("4",), access="in")
Y = tensor(int32, (4, 256), ("4", "256"), access="out")
with launch(4, threads=(64, 1, 1)) as (bx,):
    tile = alloc(uint8, (256,), "shared.dyn")
    copy(X[bx:+1, 0:+256], tile[0:+256])
    for k in parallel(256):
        Y[bx, k] = {value}
"""
#: Name to the value of a lane, and what NumPy makes of the same row ``x`` at all places ``k``.
BODIES = {
    "halves": (
        "cast(int32, tile[k // 2]) >> (k % 2 * 4) & 15",
        lambda x, k, bx, i: x[k // 2] >> k % 2 * 4 & 15,
    ),
    "packed": (
        "cast(int32, tile[k // 128 * 64 + k // 2 % 4 * 16 + k // 32 % 4 * 4 + k // 16 % 2 + k % 2 * 2])",
        lambda x, k, bx, i: x[k // 128 * 64 + k // 2 % 4 * 16 + k // 32 % 4 * 4 + k // 16 % 2 + k % 2 * 2],
    ),
    "pairs": (
        "cast(int32, X[bx, k // 2 * 2 + 1 - k % 2])",
        lambda x, k, bx, i: x[k // 2 * 2 + 1 - k % 2],
    ),
    "thirds": ("cast(int32, tile[k // 3]) + k % 3", lambda x, k, bx, i: x[k // 3] + k % 3),
    "shifted": (
        "cast(int32, tile[(k + bx) // 8 % 4 * 8 + k % 8])",
        lambda x, k, bx, i: x[(k + bx) // 8 % 4 * 8 + k % 8],
    ),
    "table": (
        "cast(int32, tile[(k + I[bx]) // 8 % 4])",
        lambda x, k, bx, i: x[(k + i[bx]) // 8 % 4],
    ),
    "wide": ("cast(int32, tile[k % 64])", lambda x, k, bx, i: x[k % 64]),
}


def text(name: str) -> str:
    """One of the kernels."""
    return TEXT.format(name=name, value=BODIES[name][0])


@pytest.fixture(scope="module", params=["x86-64-v2", "x86-64-v3"])
def library(request: pytest.FixtureRequest) -> Library:
    return Library({name: text(name) for name in BODIES}, request.param)


@pytest.mark.parametrize("name", BODIES)
def test_lanes_find_their_elements(library: Library, name: str) -> None:
    rng = np.random.default_rng(0)
    x, i = rng.integers(0, 256, (4, 256), dtype=np.uint8), rng.integers(0, 9, 4, dtype=np.int32)
    y, places = np.full((4, 256), -1, np.int32), np.arange(256)
    library.run(name, [x, i, y], {})
    expected = [BODIES[name][1](row.astype(np.int32), places, bx, i) for bx, row in enumerate(x)]
    np.testing.assert_array_equal(y, expected)
    assert any("in vectors of" in note for note in library.notes(name) if "Y" in note)


@pytest.mark.parametrize(
    ("name", "shuffles"), [("halves", True), ("packed", True), ("pairs", True), ("wide", False)]
)
def test_neighbours_in_another_order_are_read_as_vectors(name: str, shuffles: bool) -> None:
    target = parse_target("x86-64-v3")
    code = tir_text(to_tir(lower(parse_kernel(text(name)), target), target), target, "k")
    assert ("T.Shuffle([tile[" in code or "T.Shuffle([X[" in code) == shuffles


def test_neighbours_in_their_order_are_one_vector() -> None:
    target = parse_target("x86-64-v3")
    code = tir_text(to_tir(lower(parse_kernel(text("wide")), target), target), target, "k")
    assert "tile[T.Ramp(T.truncmod(k_" in code


#: Pairs turned by an angle each: what lies beside the first and the last element is not read.
ROTATED = """
kernel("rotated")
X = tensor(float32, (4, 64), ("4", "64"), access="in")
C = tensor(float32, (4, 32), ("4", "32"), access="in")
Y = tensor(float32, (4, 64), ("4", "64"), access="out")
with launch(4, threads=(64, 1, 1)) as (bx,):
    for j in parallel(64):
        Y[bx, j] = if_then_else(j % 2 == 0, X[bx, j + 1], X[bx, j - 1]) * C[bx, j // 2]
"""


def test_lanes_know_their_digits_behind_an_edge() -> None:
    """The loop begins at a number there, not at a name of it."""
    target = parse_target("x86-64-v3")
    code = tir_text(to_tir(lower(parse_kernel(ROTATED), target), target), target, "k")
    assert "j_limit" not in code
    library, rng = Library({"rotated": ROTATED}, "x86-64-v3"), np.random.default_rng(0)
    x, c = rng.random((4, 64), np.float32), rng.random((4, 32), np.float32)
    y = np.full_like(x, np.nan)
    library.run("rotated", [x, c, y], {})
    np.testing.assert_array_equal(y, x[:, np.arange(64) ^ 1] * np.repeat(c, 2, 1))
