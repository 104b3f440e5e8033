"""8-bit floats in tiles: read, computed in float32, stored with saturation."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from aarch64 import QEMU, EmulatedLibrary
from compiled import Library

from tilec.backends.cpu.codegen.objects import assembly
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.ir.interp import interpreter
from tilec.ir.text.parser import parse_kernel
from tilec.targets import parse_target, runs_here

KERNEL = """
kernel("scale")
n = dim(int32)
x = tensor(float8_{kind}, (n,), ("n",), access="in")
w = tensor(float32, (n,), ("n",), access="in")
y = tensor(float8_{kind}, (n,), ("n",), access="out")
z = tensor(float32, (n,), ("n",), access="out")
with launch((n + 31) // 32, threads=(128, 1, 1)) as (bx,):
    t = alloc(float8_{kind}, (32,), "shared.dyn")
    copy(x[bx * 32:+32], t[0:+32])
    for i in parallel(32):
        y[bx * 32 + i] = cast(float8_{kind}, cast(float32, t[i]) * w[bx * 32 + i])
        z[bx * 32 + i] = cast(float32, t[i])
"""

READ = """
kernel("read")
x = tensor(float8_{kind}, (256,), ("256",), access="in")
z = tensor(float32, (256,), ("256",), access="out")
with launch(1, threads=(128, 1, 1)) as (bx,):
    for i in parallel(256):
        z[i] = cast(float32, x[i])
"""

PRODUCT = """
kernel("product")
M = dim(int32)
A = tensor(float8_{kind}, (M, 64), ("M", "64"), access="in")
B = tensor(float8_{kind}, (64, 32), ("64", "32"), access="in")
C = tensor(float32, (M, 32), ("M", "32"), access="out")
with launch((M + 15) // 16, threads=(128, 1, 1)) as (bx,):
    a = alloc(float8_{kind}, (16, 64), "shared.dyn")
    b = alloc(float8_{kind}, (64, 32), "shared.dyn")
    c = alloc(float32, (16, 32), "local.fragment")
    copy(A[bx * 16:+16, 0:+64], a[0:+16, 0:+64])
    copy(B[0:+64, 0:+32], b[0:+64, 0:+32])
    gemm(a[0:+16, 0:+64], b[0:+64, 0:+32], c[0:+16, 0:+32], clear=True)
    copy(c[0:+16, 0:+32], C[bx * 16:+16, 0:+32])
"""


@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v4"])
@pytest.mark.parametrize("kind", ["e4m3fn", "e5m2"])
def test_products_of_float8(level, kind):
    if not runs_here(parse_target(level)):
        pytest.skip(f"this machine does not run {level}")
    dtype = getattr(ml_dtypes, f"float8_{kind}")
    rng = np.random.default_rng(6)
    a, b = (rng.normal(0, 1, shape).astype(dtype) for shape in ((21, 64), (64, 32)))
    c = np.full((21, 32), np.nan, np.float32)
    Library({"product": PRODUCT.format(kind=kind)}, level).run("product", [a, b, c], {"M": 21})
    assert np.allclose(c, a.astype(np.float64) @ b.astype(np.float64), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v4"])
@pytest.mark.parametrize("kind", ["e4m3fn", "e5m2"])
def test_float8_elements(level, kind):
    if not runs_here(parse_target(level)):
        pytest.skip(f"this machine does not run {level}")
    text = KERNEL.format(kind=kind)
    dtype = getattr(ml_dtypes, f"float8_{kind}")
    n = 269
    x = np.resize(np.arange(256, dtype=np.uint8), n).view(dtype)
    w = np.random.default_rng(4).normal(0, 3, n).astype(np.float32)
    outputs = [[np.zeros(n, dtype), np.zeros(n, np.float32)] for _ in range(2)]
    Library({"scale": text}, level).run("scale", [x, w, *outputs[0]], {"n": n})
    interpreter.run(parse_kernel(text), [x, w, *outputs[1]], {"n": n})
    for got, want in zip(*outputs, strict=True):
        assert np.array_equal(got.astype(np.float32), want.astype(np.float32), equal_nan=True)


def every_code(kind: str) -> tuple[np.ndarray, np.ndarray]:
    """All bytes, and room for what they are."""
    codes = np.arange(256, dtype=np.uint8).view(getattr(ml_dtypes, f"float8_{kind}"))
    return codes, np.zeros(256, np.float32)


@pytest.mark.parametrize("kind", ["e4m3fn", "e5m2"])
def test_every_code_is_read_by_way_of_float16(kind):
    target = parse_target("x86-64-v3")
    text, (x, z) = READ.format(kind=kind), every_code(kind)
    assert "vcvtph2ps" in assembly(to_tir(lower(parse_kernel(text), target), target), target, "k")
    Library({"read": text}, target).run("read", [x, z], {})
    np.testing.assert_array_equal(z, x.astype(np.float32))


@pytest.mark.skipif(QEMU is None, reason="qemu-aarch64 (package qemu-user) is not installed")
def test_every_code_is_read_on_aarch64():
    kinds = ("e4m3fn", "e5m2")
    library = EmulatedLibrary({kind: READ.format(kind=kind) for kind in kinds}, "aarch64")
    for kind in kinds:
        x, z = every_code(kind)
        library.run(kind, [x, z], {})
        np.testing.assert_array_equal(z, x.astype(np.float32))
