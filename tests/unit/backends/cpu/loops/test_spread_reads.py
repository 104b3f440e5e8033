"""Lanes that read every second to fourth element: colours of pixels, halves of pairs."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import LEVELS, Library, numpy_type
from memory_ends import at_the_end

from tilec.backends.cpu.codegen.objects import tir_text
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.ir.text.parser import parse_kernel
from tilec.targets import parse_target, runs_here

TEXT = """
kernel("spread")
n = dim(int32)
X = tensor({dtype}, (n, {step}), ("n", "{step}"), access="in")
Y = tensor(float32, (n,), ("n",), access="out")
with launch((n + 127) // 128, threads=(64, 1, 1)) as (bx,):
    for i in parallel(128):
        Y[bx * 128 + i] = cast(float32, X[bx * 128 + i, 0]) * 2.0 + cast(float32, X[bx * 128 + i, {last}])
"""
#: Parts of words of two and four bytes.
PARTS = [("int8", 4), ("uint8", 2), ("int8", 2), ("uint8", 4), ("int16", 2), ("uint16", 2)]
CASES = [("uint8", 3), ("float16", 2), ("bfloat16", 3), *PARTS]
CASES += [("float32", 2), ("float32", 3), ("int32", 4), ("float64", 2)]


def text(dtype: str, step: int) -> str:
    """The first and the last of ``step`` elements that lie together."""
    return TEXT.format(dtype=dtype, step=step, last=step - 1)


@pytest.mark.parametrize("level", LEVELS)
def test_lanes_find_their_elements(level: str) -> None:
    if not runs_here(parse_target(level)):
        pytest.skip(f"this machine does not run {level}")
    library = Library({f"{dtype}x{step}": text(dtype, step) for dtype, step in CASES}, level)
    rng = np.random.default_rng(0)
    for dtype, step in CASES:
        for n in (1, 15, 128, 333):
            least = 0 if dtype.startswith("uint") else -100
            x = at_the_end(rng.integers(least, 100, (n, step)).astype(numpy_type(dtype)))
            y = np.full(n, np.nan, np.float32)
            library.run(f"{dtype}x{step}", [x, y], {"n": n})
            np.testing.assert_array_equal(y, x[:, 0].astype(np.float32) * 2 + x[:, -1].astype(np.float32))


@pytest.mark.parametrize(("dtype", "step"), CASES)
def test_narrow_elements_are_read_along(dtype: str, step: int) -> None:
    target = parse_target("x86-64-v3")
    code = tir_text(to_tir(lower(parse_kernel(text(dtype, step)), target), target), target, "k")
    assert ("T.Shuffle([X[" in code) == (dtype != "float64" and (dtype, step) not in PARTS)


@pytest.mark.parametrize(("level", "words"), [("x86-64-v2", 1), ("x86-64-v4", 1), ("aarch64", 0)])
@pytest.mark.parametrize(("dtype", "step"), PARTS)
def test_parts_of_words_are_taken_out_of_these(dtype: str, step: int, level: str, words: int) -> None:
    """Where no instruction takes every second element."""
    target = parse_target(level)
    code = tir_text(to_tir(lower(parse_kernel(text(dtype, step)), target), target), target, "k")
    assert ("T.Shuffle([T.reinterpret(" in code) == bool(words)
