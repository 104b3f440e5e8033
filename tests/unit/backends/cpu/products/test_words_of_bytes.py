"""Sums of bytes and of products of bytes along a row: words where they may be, and the same numbers."""

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
A = tensor({a}, (2, {k}), ("2", "{k}"), access="in")
B = tensor({b}, (4, {k}), ("4", "{k}"), access="in")
Y = tensor(int32, (2, 4), ("2", "4"), access="inout")
with launch(1, threads=(32, 1, 1)) as (r,):
    for i, j in parallel(2, 4):
        s = alloc(int32, (1,), "local.var", init=7)
        for k in serial(0, {k}, 1):
            {names}s[0] = {sum}
        Y[i, j] = s[0]
"""
LEFT, RIGHT = "cast(int32, A[i, k])", "cast(int32, B[j, k])"
APART = f"select({LEFT} - {RIGHT} >= 0, {LEFT} - {RIGHT}, 0 - ({LEFT} - {RIGHT}))"
PLAIN = {"a": "int8", "b": "int8", "k": 256, "names": "", "sum": f"s[0] + {LEFT} * {RIGHT}"}
#: Name to what its kernel has, and whether it is one of words.
CASES = {
    "signed": (PLAIN, True),
    "unsigned_left": (PLAIN | {"a": "uint8"}, True),
    "unsigned_right": (PLAIN | {"b": "uint8", "k": 128}, True),
    "unsigned": (PLAIN | {"a": "uint8", "b": "uint8"}, True),
    "rest": (PLAIN | {"k": 333}, True),
    "few": (PLAIN | {"k": 15}, False),
    "old_behind": (PLAIN | {"sum": f"{LEFT} * {RIGHT} + s[0]"}, True),
    "named": (PLAIN | {"names": f"x = {LEFT}\n            ", "sum": f"s[0] + x * {RIGHT}"}, True),
    "nibbles": (PLAIN | {"a": "uint8", "b": "uint8", "sum": f"s[0] + ({LEFT} & 15) * ({RIGHT} >> 4)"}, True),
    "moved": (PLAIN | {"a": "uint8", "sum": f"s[0] + ({LEFT} - 128) * {RIGHT}"}, True),
    "wide": (PLAIN | {"a": "uint8", "sum": f"s[0] + ({LEFT} - 3) * {RIGHT}"}, False),
    "apart": (PLAIN | {"a": "uint8", "b": "uint8", "k": 333, "sum": f"s[0] + {APART}"}, True),
    "apart_signed": (PLAIN | {"sum": f"s[0] + {APART}"}, True),
    "apart_mixed": (PLAIN | {"a": "uint8", "sum": f"s[0] + {APART}"}, False),
}
SUM = """
kernel("k")
A = tensor({dtype}, (4, 333), ("4", "333"), access="in")
Y = tensor(int32, (4,), ("4",), access="inout")
with launch(1, threads=(32, 1, 1)) as (r,):
    for i in parallel(4):
        s = alloc(int32, (1,), "local.var")
        for k in serial(0, 333, 1):
            s[0] = s[0] + cast(int32, A[i, k])
        Y[i] = s[0]
"""
TARGETS = ("x86-64-v3", "x86-64-v4+vnni")


def text(name: str) -> str:
    return TEXT.format(name=name, **CASES[name][0])


@lru_cache(maxsize=1)
def library(target: str) -> Library:
    return Library({name: text(name) for name in CASES}, target)


@parametrized(
    ("target", "name"),
    [(target, name) for target in TARGETS for name in CASES],
    fast=[("x86-64-v4+vnni", name) for name in CASES],
)
def test_numbers_are_the_same(target: str, name: str) -> None:
    case = CASES[name][0]
    rng, ends = np.random.default_rng(0), {"int8": (-128, 128), "uint8": (0, 256)}
    a = rng.integers(*ends[case["a"]], (2, case["k"])).astype(case["a"])
    b = rng.integers(*ends[case["b"]], (4, case["k"])).astype(case["b"])
    a[0], b[0] = ends[case["a"]][0], ends[case["b"]][0]
    y, (left, right) = np.zeros((2, 4), np.int32), (part.astype(np.int32) for part in (a, b))
    made = {"nibbles": (left & 15, right >> 4), "moved": (left - 128, right), "wide": (left - 3, right)}
    library(target).run(name, [a, b, y], {})
    left, right = made.get(name, (left, right))
    total = np.abs(left[:, None] - right).sum(axis=2) if name.startswith("apart") else left @ right.T
    np.testing.assert_array_equal(y, 7 + total)


@pytest.mark.parametrize("name", CASES)
def test_words_take_one_instruction(name: str) -> None:
    target = parse_target("x86-64-v4+vnni")
    code = tir_text(to_tir(lower(parse_kernel(text(name)), target), target), target, "k")
    assert ("vpdpbusd.512" in code) == CASES[name][1]


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_bytes_are_added_up_as_words(dtype: str) -> None:
    target = parse_target("x86-64-v4+vnni")
    a = np.random.default_rng(0).integers(-128, 256, (4, 333)).astype(dtype)
    y, made = np.zeros(4, np.int32), Library({"k": SUM.format(dtype=dtype)}, target)
    made.run("k", [a, y], {})
    np.testing.assert_array_equal(y, a.sum(axis=1, dtype=np.int32))
    code = tir_text(to_tir(lower(made.kernels["k"], target), target), target, "k")
    assert "vpdpbusd.512" in code
