"""Atomic updates where one call runs all blocks of a launch: stores, in vectors where lanes have elements of
their own; results are those of updates that others may come between."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import Library

from tilec.backends.generate import compile_variant
from tilec.ir.interp import interpreter
from tilec.ir.text.parser import parse_kernel
from tilec.targets import parse_target

TEXT = """
kernel("{name}")
X = tensor(float32, (128, 64), ("128", "64"), access="in")
I = tensor(int32, (128,), ("128",), access="in")
Y = tensor(float32, (16, 65), ("16", "65"), access="inout")
W = tensor(int32, (16,), ("16",), access="inout")
with launch({blocks}, threads=(64, 1, 1)) as (bx,):
    for {loop}:
{body}
"""
ROWS, COUNTS = "j in parallel(64)", "i, j in parallel(32, 64)"
#: Name to blocks, loop, and lines of its body.
BODIES = {
    "rows": (128, ROWS, ("atomic_add(Y[I[bx], j], X[bx, j])",)),
    "largest": (128, ROWS, ("atomic_max(Y[I[bx], j], X[bx, j])",)),
    "neighbours": (128, ROWS, ("atomic_add(Y[I[bx], j], X[bx, j])", "atomic_add(Y[I[bx], j + 1], X[bx, j])")),
    "masked": (128, ROWS, ("if X[bx, j] > cast(float32, 3):", "    atomic_add(Y[I[bx], j], X[bx, j])")),
    "places": (4, COUNTS, ("atomic_add(W[(I[bx * 32 + i] + j) % 16], 1)",)),
    "one": (4, COUNTS, ("atomic_add(W[3], 1)", "atomic_add(W[3], j)", "atomic_or(W[4], i)")),
    "exchange": (4, COUNTS, ("atomic_add(Y[0, j], Y[1, j % 3])", "atomic_add(Y[1, j % 3], Y[0, j])")),
}


def text(name: str, blocks: int | None = None) -> str:
    """One of the kernels."""
    usual, loop, lines = BODIES[name]
    body = "\n".join(f"        {line}" for line in lines)
    return TEXT.format(name=name, blocks=blocks or usual, loop=loop, body=body)


@pytest.fixture(scope="module")
def library():
    return Library({name: text(name) for name in BODIES}, "x86-64-v3")


@pytest.mark.parametrize("pieces", [1, 2, 3])
@pytest.mark.parametrize("name", BODIES)
def test_every_iteration_counts_once(library, name, pieces):
    rng = np.random.default_rng(len(name))
    x, at = rng.integers(-9, 9, (128, 64)).astype("float32"), rng.integers(-1, 18, 128).astype("int32")
    given = [x, at, np.ones((16, 65), "float32"), np.zeros(16, "int32")]
    if name == "exchange":
        given[2][:] = 0
    wanted = [array.copy() for array in given]
    interpreter.run(library.kernels[name], wanted, {})
    library.run(name, given, {}, pieces)
    for mine, theirs in zip(given, wanted, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_lanes_have_elements_of_their_own(library):
    assert any("vectors of 8 lanes" in note for note in library.notes("rows"))
    lost = [note for note in library.notes("rows") if "scalar" in note]
    assert lost
    assert all("where several threads share the blocks" in note for note in lost)


def test_a_launch_of_one_block_has_no_atomic_instruction():
    image = compile_variant(parse_kernel(text("rows", blocks=1)), parse_target("x86-64-v3"), "k")
    assert not any("scalar" in str(road) for road in image.launches[0].roads)
    assert b"\xf0" + b"\x0f\xb1" not in image.code, "lock cmpxchg"
