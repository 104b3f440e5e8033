"""Bytes and numbers of 16 bits that are made of such: in 16 bits where they may, and the same numbers."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest
from compiled import Library

from tilec.backends.pipeline import lower
from tilec.ir.text.parser import parse_kernel
from tilec.ir.text.printer import format_kernel
from tilec.targets import parse_target

TEXT = """
kernel("{name}")
X = tensor(uint8, (256,), ("256",), access="in")
Z = tensor(int8, (256,), ("256",), access="in")
W = tensor(uint16, (256,), ("256",), access="in")
k = scalar(int32)
Y = tensor({result}, (256,), ("256",), access="inout")
with launch(1, threads=(32, 1, 1)) as (r,):
    for i in parallel(256):
        x = cast(int32, X[i])
        z = cast(int32, Z[i])
        w = cast(int32, W[i])
        {names}Y[i] = cast({result}, {value})
"""
SUM = """s = alloc(int32, (1,), "local.var", init=100)
        for j in serial(0, {trips}, 1):
            s[0] = s[0] + x * (j % 2 + 1)
        """
#: Name to the type of the result, a value, and whether 16 bits are enough; names in front of it.
CASES: dict[str, tuple[str, str, bool, str]] = {
    "weighed": ("uint8", "77 * x + 150 * x + 29 * x + 128 >> 8", True, ""),
    "wraps": ("int8", "(x * z * 77 - z * 991 >> 8) + 128", True, ""),
    "sign": ("int8", "x * z - 3 >> 9", True, ""),
    "too_wide": ("uint8", "w * x >> 9", False, ""),
    "lowest": ("uint16", "w * x - z * 70000", True, ""),
    "clamped": ("uint8", "min(max((x * 5 >> 2) + z, 0), 255)", True, ""),
    "unsigned": ("uint8", "min(w, 300) // 3", True, ""),
    "ordered_apart": ("uint8", "max(w - 1, z) // 300", False, ""),
    "divided": ("uint8", "x * 255 // 7 % 200", True, ""),
    "negative": ("uint8", "z // 3", False, ""),
    "below_zero": ("int8", "z * x // 256", True, ""),
    "chosen": ("uint8", "select(x - z >= 0, x - z, z - x)", True, ""),
    "scalar": ("uint8", "x * k + z", True, ""),
    "whole_scalar": ("uint8", "x * k >> 9", False, ""),
    "named": ("uint8", "a + (a >> 8) >> 8", True, "a = x * 254 + 3\n        "),
    "used_again": ("uint8", "(a + 7 >> 3) + (a * a >> 20)", False, "a = x * 100\n        "),
    "summed": ("uint8", "s[0] // 9", True, SUM.format(trips=6)),
    "wrapping_sum": ("uint8", "s[0] >> 5", True, SUM.format(trips=600)),
    "wide_sum": ("uint8", "s[0] // 9", False, SUM.format(trips=600)),
}
TARGETS = ("x86-64-v2", "x86-64-v4")


def text(name: str) -> str:
    result, value, _, names = CASES[name]
    return TEXT.format(name=name, result=result, value=value, names=names)


@lru_cache(maxsize=1)
def library(target: str) -> Library:
    return Library({name: text(name) for name in CASES}, target)


@pytest.mark.parametrize("name", CASES)
def test_sixteen_bits_where_they_are_enough(name: str) -> None:
    target = parse_target("x86-64-v3")
    made = format_kernel(lower(parse_kernel(text(name)), target))
    assert ("cast(int32" not in made) is CASES[name][2]


@pytest.mark.parametrize(("target", "name"), [(target, name) for target in TARGETS for name in CASES])
def test_results_are_the_same(target: str, name: str) -> None:
    random = np.random.default_rng(len(name))
    kinds = (np.uint8, np.int8, np.uint16)
    x, z, w = (
        random.integers(np.iinfo(kind).min, np.iinfo(kind).max + 1, 256).astype(kind) for kind in kinds
    )
    result, value, _, names = CASES[name]
    y = np.zeros(256, result)
    library(target).run(name, [x, z, w, 345678, y], {})
    known = {"x": x.astype(np.int64), "z": z.astype(np.int64), "w": w.astype(np.int64), "k": 345678}
    known |= {"min": np.minimum, "max": np.maximum, "select": np.where}
    if names.startswith("a = "):
        known["a"] = eval(names[4:].strip(), known)
    trips = {"summed": 6, "wide_sum": 600, "wrapping_sum": 600}.get(name, 0)
    known["s"] = [100 + sum(known["x"] * (j % 2 + 1) for j in range(trips))]
    assert np.array_equal(y, eval(value, known).astype(result))
