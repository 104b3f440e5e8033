"""Numbers of few bits that lanes take out of bytes become bytes without passing through words."""

from __future__ import annotations

import re

import numpy as np
import pytest
from compiled import Library

from tilec.backends.cpu.codegen.objects import tir_text
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.ir.text.parser import parse_kernel
from tilec.targets import parse_target

TEXT = """
kernel("k")
X = tensor({stored}, (3, 64), ("3", "64"), access="in")
Y = tensor(int8, (3, 128), ("3", "128"), access="out")
with launch(1, threads=(128, 1, 1)) as (bx,):
    for i, j in parallel(3, 128):
        q = {number}
        Y[i, j] = cast(int8, q - 8)
"""
#: A number of four or two bits in 128 lanes, and as NumPy has it of ``x`` at ``j``.
NUMBERS = {
    "halves": ("cast(int32, X[i, j // 2]) >> j % 2 * 4 & 15", lambda x, j: x[:, j // 2] >> j % 2 * 4 & 15),
    "blocks": (
        "cast(int32, X[i, j // 32 * 16 + j % 16]) >> j // 16 % 2 * 4 & 15",
        lambda x, j: x[:, j // 32 * 16 + j % 16] >> j // 16 % 2 * 4 & 15,
    ),
    "quarters": ("cast(int32, X[i, j // 4]) >> j % 4 * 2 & 3", lambda x, j: x[:, j // 4] >> j % 4 * 2 & 3),
    "three bits": ("cast(int32, X[i, j // 2]) >> j % 2 * 4 & 7", lambda x, j: x[:, j // 2] >> j % 2 * 4 & 7),
    "with the sign": (
        "cast(int32, X[i, j // 2]) >> j % 2 * 4 & 31",
        lambda x, j: x[:, j // 2] >> j % 2 * 4 & 31,
    ),
    "moving": (
        "cast(int32, X[i, j // 2]) >> (j + i) % 2 * 4 & 15",
        lambda x, j: x[:, j // 2] >> (j + np.arange(3)[:, None]) % 2 * 4 & 15,
    ),
}


@pytest.mark.parametrize("stored", ["uint8", "int8"])
@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("form", NUMBERS)
def test_numbers(form: str, target: str, stored: str) -> None:
    """Of bytes with a sign, too; more bits than a byte has above a place are those of its sign."""
    text, number = NUMBERS[form]
    x = np.random.default_rng(0).integers(0, 256, (3, 64)).astype(np.uint8).view(stored)
    y = np.zeros((3, 128), np.int8)
    Library({"k": TEXT.format(stored=stored, number=text)}, target).run("k", [x, y], {})
    np.testing.assert_array_equal(y, (number(x.astype(np.int32), np.arange(128)) - 8).astype(np.int8))


@pytest.mark.parametrize("form", NUMBERS)
@pytest.mark.parametrize(("target", "lanes"), [("x86-64-v3", 32), ("x86-64-v4", 64)])
def test_bytes_are_shifted_as_words(form: str, target: str, lanes: int) -> None:
    """By one distance at a time, where lanes have theirs at build time and the byte has all bits."""
    parsed = parse_target(target)
    kernel = parse_kernel(TEXT.format(stored="uint8", number=NUMBERS[form][0]))
    text = tir_text(to_tir(lower(kernel, parsed), parsed), parsed, "k")
    found = re.findall(rf"(?:>>|shift_right\().*?\(?T.uint16\((\d)\), {lanes // 2}\)", text)
    known = form not in ("with the sign", "moving")
    assert (f'"uint8x{lanes}"' in text and bool(found)) is known
