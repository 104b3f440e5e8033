"""Short rows that iterations have for themselves: held where all of them is stored, and the same numbers."""

from __future__ import annotations

from functools import lru_cache

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
X = tensor(float32, (37,), ("37",), access="in")
S = tensor(float32, (37, 4), ("37", "4"), access="inout")
Y = tensor(float32, (37,), ("37",), access="inout")
with launch(1, threads=(32, 1, 1)) as (r,):
    for i in parallel(37):
        s = alloc(float32, (1,), "local.var", init=0.0)
        for w in serial(0, 3, 1):
            {shift}
            s[0] = s[0] * 2.0 + S[i, w]
        {last}
        Y[i] = s[0] + S[i, 3]
"""
SHIFT, LAST = "S[i, w] = S[i, w + 1]", "S[i, 3] = X[i]"
#: Name to what the kernel does with a row, and whether it is held.
CASES = {
    "shifted": (SHIFT, LAST, True),
    "looked_up": (SHIFT, "t = cast(int32, X[i]) & 1\n        S[i, 3] = S[i, t]", False),
    "some": ("if X[i] > 4.0:\n                S[i, w] = X[i]", LAST, False),
    "part": (SHIFT, "s[0] = s[0] + X[i]", False),
}


def text(name: str) -> str:
    shift, last, _ = CASES[name]
    return TEXT.format(name=name, shift=shift, last=last)


@lru_cache(maxsize=1)
def library() -> Library:
    return Library({name: text(name) for name in CASES}, "x86-64-v4")


def expected(name: str, x: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """What the kernel returns of arrays; rows are changed in place."""
    s = np.zeros_like(x)
    for w in range(3):
        rows[:, w] = np.where(x > 4, x, rows[:, w]) if name == "some" else rows[:, w + 1]
        s = s * 2 + rows[:, w]
    if name == "part":
        s = s + x
    elif name == "looked_up":
        rows[:, 3] = rows[np.arange(len(x)), x.astype(np.int32) & 1]
    else:
        rows[:, 3] = x
    return s + rows[:, 3]


@pytest.mark.parametrize("name", CASES)
def test_numbers_are_the_same(name: str) -> None:
    rng = np.random.default_rng(0)
    x, rows = (rng.integers(0, 9, shape).astype(np.float32) for shape in ((37,), (37, 4)))
    got, y = rows.copy(), np.zeros_like(x)
    library().run(name, [x, got, y], {})
    np.testing.assert_array_equal(y, expected(name, x, rows))
    np.testing.assert_array_equal(got, rows)


@pytest.mark.parametrize("name", CASES)
def test_rows_are_stored_at_the_end(name: str) -> None:
    target = parse_target("x86-64-v4")
    code = tir_text(to_tir(lower(parse_kernel(text(name)), target), target), target, "k")
    assert ("S_0 = T.alloc_buffer" in code) == CASES[name][2]
