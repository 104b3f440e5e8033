"""Scalar functions in Metal source, run on this machine beside the interpreter."""

from __future__ import annotations

from pathlib import Path

import pytest
from breadth import diagonal, parametrized
from emulated import Beside
from metal_source import TARGET, OnMetal

import tilec.language as T
from tilec.ir.guards import Guard
from tilec.language.frontend.elaborate import elaborate

ONE = """exp exp2 exp10 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh sqrt
rsqrt erf sigmoid floor ceil trunc nearbyint round abs""".split()
TWO = "pow fmod atan2 hypot copysign nextafter".split()
DTYPES = ("float32", "float16")


def applied(one: str, dtype: str, M=None):
    """A function of one number, or of two that are the same."""

    @T.prim_func
    def main(X: T.Tensor((M,), dtype), Y: T.Tensor((M,), dtype)):
        with T.Kernel(T.ceildiv(M, 128), threads=64) as b:
            for i in T.Parallel(128):
                x = X[b * 128 + i]
                Y[b * 128 + i] = getattr(T, one)(*([x] if one in ONE else [x, 1.5 - x]))

    return main


@parametrized(
    ("name", "dtype"),
    [(name, dtype) for name in (*ONE, *TWO) for dtype in DTYPES],
    fast=diagonal((*ONE, *TWO), DTYPES)[::3],
)
def test_functions(name: str, dtype: str, tmp_path: Path) -> None:
    if (name, dtype) == ("nextafter", "float16"):
        pytest.skip("the neighbour of a half is one of float32, which is that half again")
    args = {"one": name, "dtype": dtype}
    kernel = elaborate(applied, name="kernel", dims={"M": Guard()}, args=args, config={})
    assert Beside(kernel, TARGET, run=OnMetal(kernel, tmp_path)).run({"M": 300}) == []


def test_a_product_rounded_up(tmp_path: Path) -> None:
    @T.prim_func
    def main(X: T.Tensor((256,), "float32"), Y: T.Tensor((256,), "float32")):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(256):
                Y[i] = T.ieee_mul(X[i], X[i] + 0.1, "ru")

    kernel = elaborate(main, name="kernel", dims={}, args={}, config={}, open_dims=True)
    assert Beside(kernel, TARGET, run=OnMetal(kernel, tmp_path)).run({}) == []


def stored(dtype: str, source: str = "float32", M=None):
    """Numbers as ``dtype`` has them."""

    @T.prim_func
    def main(X: T.Tensor((M,), source), Y: T.Tensor((M,), dtype)):
        with T.Kernel(T.ceildiv(M, 128), threads=64) as b:
            for i in T.Parallel(128):
                Y[b * 128 + i] = X[b * 128 + i]

    return main


@pytest.mark.parametrize("source", ["float32", "int8"])
@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_conversions_to_8_bits(dtype: str, source: str, tmp_path: Path) -> None:
    args = {"dtype": dtype, "source": source}
    kernel = elaborate(stored, name="kernel", dims={"M": Guard()}, args=args, config={})
    run = OnMetal(kernel, tmp_path)
    assert Beside(kernel, TARGET, run=run).run({"M": 300}) == []
    assert max(map(len, run.source.splitlines())) < 5000


def test_names_of_macros(tmp_path: Path) -> None:
    @T.prim_func
    def main(X: T.Tensor((64,), "float32"), Y: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(64):
                NAN = T.exp(X[i])
                M_PI_F = NAN * NAN
                INFINITY = T.max(M_PI_F, 1.0)
                Y[i] = INFINITY + NAN + M_PI_F

    kernel = elaborate(main, name="kernel", dims={}, args={}, config={}, open_dims=True)
    run = OnMetal(kernel, tmp_path)
    assert " M_PI_F_ = " in run.source
    assert " NAN_1 = " in run.source
    assert Beside(kernel, TARGET, run=run).run({}) == []


def narrow(dtype: str, wide: str, M=None):
    """What operators make of integers that Metal computes in 32 bits, where their type chooses a function."""

    @T.prim_func
    def main(A: T.Tensor((M,), dtype), B: T.Tensor((M,), dtype), C: T.Tensor((4, M), dtype),
             D: T.Tensor((M,), wide)):  # fmt: skip
        with T.Kernel(T.ceildiv(M, 128), threads=64) as b:
            for i in T.Parallel(128):
                x, y = A[b * 128 + i], B[b * 128 + i]
                C[0, b * 128 + i] = T.max(x | y, y)
                C[1, b * 128 + i] = T.min(x & y, T.cast(5, dtype))
                C[2, b * 128 + i] = T.max(x >> T.cast(1, dtype), ~y)
                C[3, b * 128 + i] = T.clamp(x ^ y, T.cast(3, dtype), T.cast(90, dtype))
                D[b * 128 + i] = T.reinterpret(x ^ y, wide)

    return main


@pytest.mark.parametrize(
    ("dtype", "wide"),
    [("uint8", "int8"), ("int8", "uint8"), ("int16", "bfloat16"), ("uint16", "float16")],
)
def test_narrow_integers(dtype: str, wide: str, tmp_path: Path) -> None:
    args = {"dtype": dtype, "wide": wide}
    kernel = elaborate(narrow, name="kernel", dims={"M": Guard()}, args=args, config={})
    assert Beside(kernel, TARGET, run=OnMetal(kernel, tmp_path)).run({"M": 300}) == []


def updated(kind: str, dtype: str, shared: bool, M=None):
    """The numbers of a tensor taken together in four elements, of a tensor or of a shared tile."""
    update = {"add": T.atomic_add, "max": T.atomic_max, "min": T.atomic_min}[kind]

    @T.prim_func
    def main(X: T.Tensor((M,), dtype), Y: T.Tensor((4,), dtype)):
        with T.Kernel(1, threads=64):
            own = T.alloc_shared((4,), dtype)
            found = own if shared else Y
            T.clear(found)
            for i in T.Parallel(M):
                update(found[i % 4], T.floor(X[i] * 8.0))
            if shared:
                T.copy(own, Y)

    return main


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("kind", ["add", "max", "min"])
def test_atomics_of_floats(kind: str, shared: bool, tmp_path: Path) -> None:
    args = {"kind": kind, "dtype": "float32", "shared": shared}
    kernel = elaborate(updated, name="kernel", dims={"M": Guard(eq=64)}, args=args, config={})
    assert Beside(kernel, TARGET, run=OnMetal(kernel, tmp_path)).run({"M": 64}) == []
