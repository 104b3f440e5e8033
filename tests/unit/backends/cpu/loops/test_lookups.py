"""Elements that lanes look up for themselves, where these exist."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import Library, numpy_type
from told import losses
from tvm import tirx

from tilec.backends.cpu.codegen.objects import tir_text
from tilec.backends.cpu.emit.vectors.first_lanes import lanes_that_exist
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.ir.text.parser import parse_kernel
from tilec.targets import parse_target, runs_here

#: Places below 0 stand for 7, those behind the end for 0; what is found is doubled.
KERNEL = """
kernel("looked_up")
n = dim(int32)
m = dim(int32)
X = tensor({dtype}, (m,), ("m",), access="in")
at = tensor(int32, (n,), ("n",), access="in")
Y = tensor({dtype}, (n,), ("n",), access="out")
with launch((n + 255) // 256, threads=(64, 1, 1)) as (bx,):
    for i in parallel(256):
        Y[bx * 256 + i] = if_then_else(at[bx * 256 + i] >= 0, X[at[bx * 256 + i]], {dtype}(7)){times}
"""
DOUBLED = KERNEL.replace("{times}", " * {dtype}(2)")
MOVED = KERNEL.replace("{times}", "")

SUMMED = """
kernel("summed")
n = dim(int32)
X = tensor(float32, (n,), ("n",), access="in")
at = tensor(int32, (256,), ("256",), access="in")
Y = tensor(float32, (1,), ("1",), access="out")
with launch(1, threads=(64, 1, 1)) as (bx,):
    total = alloc(float32, (1,), "local.fragment")
    fill(total[0:+1], 0.0)
    for i in parallel(256):
        total[0] = total[0] + X[at[i]]
    Y[0] = total[0]
"""


def tir(text: str, level: str) -> str:
    """What LLVM gets of a kernel."""
    target = parse_target(level)
    return tir_text(to_tir(lower(parse_kernel(text), target), target), target, "k")


@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_what_is_not_there_is_not_read(level: str, dtype: str) -> None:
    """Of no elements, one and many."""
    if not runs_here(parse_target(level)):
        pytest.skip(f"this machine does not run {level}")
    library, rng = Library({"looked_up": DOUBLED.format(dtype=dtype)}, level), np.random.default_rng(0)
    for n, m in ((5, 0), (77, 1), (1000, 300)):
        x, y = rng.integers(0, 1000, m).astype(dtype), np.full(n, -1, dtype)
        at = rng.integers(-50, m + 50, n).astype(np.int32)
        library.run("looked_up", [x, at, y], {"n": n, "m": m})
        found = np.append(x, np.zeros(1, dtype))[np.clip(at, 0, m)]
        np.testing.assert_array_equal(y, 2 * np.where(at < 0, 7, found))


@pytest.mark.parametrize(("level", "gathers"), [("x86-64-v2", 0), ("x86-64-v3", 8), ("x86-64-v4", 16)])
def test_lanes_look_up_for_themselves_where_instructions_do(level: str, gathers: int) -> None:
    """To compute with what they find; to move it one by one is as fast."""
    text = tir(DOUBLED.format(dtype="float32"), level)
    assert (f"tilec_gather_int64_float32x{gathers}" in text) == bool(gathers)
    assert ("tilec_gather" in text) == bool(gathers)
    assert "tilec_gather" not in tir(MOVED.format(dtype="float32"), level)


def test_sums_of_what_is_looked_up_are_vectors() -> None:
    assert "tilec_gather_int64_float32x8" in tir(SUMMED, "x86-64-v3")
    x, at = np.arange(1, 101, dtype=np.float32), np.arange(-20, 236, dtype=np.int32)
    y = np.zeros(1, np.float32)
    Library({"summed": SUMMED}, "x86-64-v3").run("summed", [x, at, y], {"n": 100})
    assert y[0] == 5050


@pytest.mark.parametrize(
    ("level", "shared"),
    [
        ("x86-64-v4", "declare <8 x i32> @llvm.masked.gather.v8i32.v8p0"),
        ("x86-64-v3", "@tilec_nothing = linkonce_odr hidden constant i64 0"),
    ],
)
def test_functions_that_share_a_declaration_have_it_once(level: str, shared: str) -> None:
    """As those that look up a tile and a tensor do, whose places have two types."""
    functions: dict[str, str] = {}
    base, exists = tirx.Var("base", "handle"), tirx.Broadcast(tirx.const(True, "bool"), 8)
    for index in ("int32", "int64"):
        at = tirx.Broadcast(tirx.const(0, index), 8)
        lanes_that_exist(base, at, exists, "int32", parse_target(level), functions)
    text = "\n".join(functions.values())
    assert text.count(shared) == 1
    assert text.count("define ") == 2


#: Tables of a known size; places behind the end, and in front of the first, have a zero.
COMPUTED = """
kernel("computed")
n = dim(int32)
X = tensor({dtype}, (40,), ("40",), access="in")
at = tensor(int32, (n,), ("n",), access="in")
Y = tensor(float32, (n,), ("n",), access="out")
with launch((n + 63) // 64, threads=(64, 1, 1)) as (bx,):
    for i in parallel(64):
        Y[bx * 64 + i] = max(cast(float32, X[at[bx * 64 + i]]) * 2.0, -9.0) + 1.0
"""


@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_lanes_look_up_what_no_instruction_does(level: str) -> None:
    """Those that compute with what they find."""
    if not runs_here(parse_target(level)):
        pytest.skip(f"this machine does not run {level}")
    types = ("float32", "float16", "bfloat16", "int8", "uint8")
    library = Library({dtype: COMPUTED.format(dtype=dtype) for dtype in types}, level)
    rng = np.random.default_rng(0)
    for dtype in types:
        assert not losses(library.images[dtype].launches[0])
        x = rng.integers(0, 100, 40).astype(numpy_type(dtype))
        for n in (1, 64, 77):
            at, y = rng.integers(-5, 45, n).astype(np.int32), np.full(n, np.nan, np.float32)
            library.run(dtype, [x, at, y], {"n": n})
            found = np.where((at >= 0) & (at < 40), x.astype(np.float32)[np.clip(at, 0, 39)], 0)
            np.testing.assert_array_equal(y, found * 2 + 1)
