"""Stores of lanes to neighbours of each other: written together where they may be, and the same numbers."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest
from breadth import parametrized
from compiled import Library

from tilec.backends.cpu.codegen.objects import tir_text
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.ir.text.parser import parse_kernel
from tilec.targets import parse_target

TEXT = """
kernel("{name}")
X = tensor({dtype}, (37, {count}), ("37", "{count}"), access="inout")
Y = tensor({dtype}, (37, {count}), ("37", "{count}"), access="inout")
with launch(1, threads=(32, 1, 1)) as (r,):
    for i in parallel(37):
        {body}
"""
PAIRS = "Y[i, 1] = X[i, 0]\n        Y[i, 0] = X[i, 1]"
COLOURS = "Y[i, 0] = X[i, 2] + X[i, 1]\n        Y[i, 2] = X[i, 0]\n        Y[i, 1] = X[i, 1] * X[i, 0]"
FOUR = "\n        ".join(f"Y[i, {at}] = X[i, {3 - at}]" for at in range(4))
#: Name to the type of elements, their number in a row, the statements, and whether they are written together.
CASES = {
    "pairs": ("float32", 2, PAIRS, True),
    "halves": ("bfloat16", 2, PAIRS, True),
    "wide": ("float64", 2, PAIRS, True),
    "colours": ("uint8", 3, COLOURS, True),
    "four": ("int32", 4, FOUR, True),
    "rotated": ("float32", 2, "a = X[i, 0]\n        X[i, 0] = X[i, 1]\n        X[i, 1] = a", True),
    "read": ("float32", 2, "X[i, 0] = X[i, 1] * 2.0\n        X[i, 1] = X[i, 0] + 1.0", True),
    "own": (
        "float32",
        2,
        'a = alloc(float32, (1,), "local.var")\n        a[0] = X[i, 0]\n        '
        "Y[i, 0] = X[i, 1]\n        Y[i, 1] = a[0]",
        True,
    ),
    "part": ("float32", 3, PAIRS, False),
}
TARGETS = ("x86-64-v2", "x86-64-v3", "x86-64-v4")


def text(name: str) -> str:
    dtype, count, body, _ = CASES[name]
    return TEXT.format(name=name, dtype=dtype, count=count, body=body)


@lru_cache(maxsize=1)
def library(target: str) -> Library:
    return Library({name: text(name) for name in CASES}, target)


def expected(name: str, x: np.ndarray, y: np.ndarray) -> None:
    """What the kernel makes of arrays, in place."""
    if name == "rotated":
        x[:] = x[:, ::-1].copy()
    elif name == "read":
        x[:, 0] = x[:, 1] * 2
        x[:, 1] = x[:, 0] + 1
    elif name == "colours":
        y[:] = np.stack([x[:, 2] + x[:, 1], x[:, 1] * x[:, 0], x[:, 0]], axis=1)
    elif name == "part":
        y[:, :2] = x[:, 1::-1]
    else:
        y[:] = x[:, ::-1]


@parametrized(
    ("target", "name"),
    [(target, name) for target in TARGETS for name in CASES],
    fast=[("x86-64-v4", name) for name in CASES],
)
def test_numbers_are_the_same(target: str, name: str) -> None:
    dtype, count = CASES[name][:2]
    stored = "uint16" if dtype == "bfloat16" else dtype
    x = np.random.default_rng(0).integers(0, 99, (37, count)).astype(stored)
    y = np.zeros_like(x)
    got = [x.copy(), y.copy()]
    library(target).run(name, got, {})
    expected(name, x, y)
    np.testing.assert_array_equal(got[0], x)
    np.testing.assert_array_equal(got[1], y)


@pytest.mark.parametrize("name", CASES)
def test_stores_fill_vectors(name: str) -> None:
    target = parse_target("x86-64-v4")
    code = tir_text(to_tir(lower(parse_kernel(text(name)), target), target), target, "k")
    buffer = "X" if "X[i, 0] =" in CASES[name][2] else "Y"
    assert (f"{buffer}_1 = T.alloc_buffer" in code) == CASES[name][3]
