"""float16 elements where no instruction converts them: vectors of integers, and no function of an element."""

from __future__ import annotations

import re

import numpy as np
from compiled import Library

from tilec.backends.cpu.codegen.objects import assembly
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.ir.text.parser import parse_kernel
from tilec.targets import parse_target

LEVEL = "x86-64-v2"
READ = """
kernel("read")
n = dim(int32)
x = tensor(float16, (n,), ("n",), access="in")
z = tensor(float32, (n,), ("n",), access="out")
with launch(1, threads=(128, 1, 1)) as (bx,):
    for i in parallel(n):
        z[i] = cast(float32, x[i])
"""
WRITE = """
kernel("write")
n = dim(int32)
x = tensor(float32, (n,), ("n",), access="in")
y = tensor(float32, (n,), ("n",), access="out")
z = tensor(float16, (n,), ("n",), access="out")
with launch(1, threads=(128, 1, 1)) as (bx,):
    for i in parallel(n):
        z[i] = cast(float16, x[i])
        y[i] = cast(float32, cast(float16, x[i]))
"""


def _numbers() -> np.ndarray:
    """All float16 numbers, those between two of them, and their neighbours in float32."""
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    halves = halves[np.isfinite(halves)]
    between = halves.view(np.uint32)[:, None] + np.array([0, 0xFFF, 0x1000, 0x1001, 0x1FFF], np.uint32)
    steps = halves[:, None] + np.float32(2.0**-25) * np.array([0.999, 1, 1.001], np.float32)
    rest = np.array([1e-46, 2.0**-149, 65519.0, 65520.0, 1e38, np.inf, -np.inf, np.nan], np.float32)
    return np.concatenate([between.view(np.float32).ravel(), steps.ravel(), rest])


def test_float16_is_read_exactly() -> None:
    x = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    z = np.empty(x.size, np.float32)
    Library({"read": READ}, LEVEL).run("read", [x, z], {"n": x.size})
    np.testing.assert_array_equal(z, x.astype(np.float32))


def test_float16_is_rounded_to_nearest_even() -> None:
    x = _numbers()
    y, z = np.empty(x.size, np.float32), np.empty(x.size, np.float16)
    Library({"write": WRITE}, LEVEL).run("write", [x, y, z], {"n": x.size})
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = x.astype(np.float16)
    np.testing.assert_array_equal(z, wanted)
    np.testing.assert_array_equal(y, wanted.astype(np.float32))
    same = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(z[same]), np.signbit(wanted[same]))


def test_no_function_is_called_for_an_element() -> None:
    target = parse_target(LEVEL)
    for text in (READ, WRITE):
        code = assembly(to_tir(lower(parse_kernel(text), target), target), target, "k")
        assert set(re.findall(r"call\w*\s+(\w+)", code)) <= {"tilec_last_cache_bytes"}
