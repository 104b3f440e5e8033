"""Atomic updates, scans and bit reductions, compiled and compared with the interpreter; colliding threads."""

from __future__ import annotations

import ctypes
import threading
from functools import cache

import numpy as np
import pytest
from compiled import Library, numpy_type
from told import told
from variant_code import compile_variant

from tilec.ir.interp import interpreter
from tilec.ir.text.parser import parse_kernel
from tilec.ir.text.printer import format_kernel
from tilec.targets import parse_target

DTYPES = ("int32", "uint8", "int64", "float16", "bfloat16", "float32", "float64")

UPDATES = """kernel("updates")
n = dim(int32)
x = tensor({dtype}, (n,), ("n",), access="in")
at = tensor(int32, (n,), ("n",), access="in")
y = tensor({dtype}, (8,), ("8",), access="inout")
z = tensor({dtype}, (n,), ("n",), access="out")
with launch((n + 63) // 64, threads=(128, 1, 1)) as (b,):
    for i in parallel(64):
        if b * 64 + i < n:
            atomic_{kind}(y[at[b * 64 + i]], x[b * 64 + i]{order})
            old = atomic_{kind}(y[at[b * 64 + i]], x[b * 64 + i])
            z[b * 64 + i] = old
"""

TILES = """kernel("tiles")
n = dim(int32)
x = tensor({dtype}, (16, n), ("16", "n"), access="in")
y = tensor({dtype}, (16, n), ("16", "n"), access="out")
w = tensor({dtype}, (16, n), ("16", "n"), access="out")
s = tensor({dtype}, (n,), ("n",), access="out")
with launch((n + 31) // 32, threads=(128, 1, 1)) as (b,):
    t = alloc({dtype}, (16, 32), "shared.dyn")
    u = alloc({dtype}, (16, 32), "local.fragment")
    v = alloc({dtype}, (32,), "local.fragment")
    copy(x[0:+16, b * 32:+32], t[0:+16, 0:+32])
    scan_sum(t[0:+16, 0:+32], u[0:+16, 0:+32], axis=0, reverse=True)
    fill(v[0:+32], cast({dtype}, 1))
    for i, j in parallel(16, 32):
        atomic_add(v[(i + j) % 32], t[i, j])
    scan_max(t[0:+16, 0:+32], t[0:+16, 0:+32], axis=1)
    scan_sum(v[0:+32], v[0:+32], axis=0)
    copy(u[0:+16, 0:+32], y[0:+16, b * 32:+32])
    copy(t[0:+16, 0:+32], w[0:+16, b * 32:+32])
    copy(v[0:+32], s[b * 32:+32])
"""

BITS = """kernel("bits")
n = dim(int32)
x = tensor(int32, (n, 24), ("n", "24"), access="in")
y = tensor(int32, (n,), ("n",), access="out")
with launch(n, threads=(128, 1, 1)) as (b,):
    t = alloc(int32, (1, 24), "local.fragment")
    u = alloc(int32, (1,), "local.fragment")
    copy(x[b:+1, 0:+24], t[0:+1, 0:+24])
    reduce_{kind}(t[0:+1, 0:+24], u[0:+1], axis=1, clear=True)
    copy(u[0:+1], y[b:+1])
"""

KINDS = [(dtype, kind) for dtype in DTYPES for kind in ("add", "max", "min", "or")]
COMPILED = [(dtype, kind) for dtype, kind in KINDS if kind != "or" or "int" in dtype]
BIT_KINDS = ("bitand", "bitor", "bitxor", "abssum")


def sources() -> dict[str, str]:
    """The text of every kernel by name."""
    found = {
        f"{dtype}_{kind}": UPDATES.format(
            dtype=dtype, kind=kind, order=', order="acq_rel"' if kind == "add" else ""
        )
        for dtype, kind in COMPILED
    }
    found |= {f"{dtype}_tiles": TILES.format(dtype=dtype) for dtype in DTYPES}
    return found | {kind: BITS.format(kind=kind) for kind in BIT_KINDS}


@cache
def library(name: str) -> Library:
    """A kernel, compiled once."""
    return Library({name: sources()[name]}, "x86-64-v3")


def check(name: str, args: list[np.ndarray], n: int) -> None:
    expected, found = ([arg.copy() for arg in args] for _ in range(2))
    interpreter.run(library(name).kernels[name], expected, {"n": n})
    library(name).run(name, found, {"n": n})
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_texts_parse_back():
    assert all(format_kernel(parse_kernel(text)) == text for text in sources().values())


@pytest.mark.parametrize("n", [1, 40, 150])
@pytest.mark.parametrize(("dtype", "kind"), COMPILED)
def test_updates(dtype, kind, n):
    rng, element = np.random.default_rng(n), numpy_type(dtype)
    x, y = (rng.integers(0, 9, size).astype(element) for size in (n, 8))
    at = rng.integers(-2, 10, n).astype(np.int32)
    check(f"{dtype}_{kind}", [x, at, y, np.zeros(n, element)], n)


@pytest.mark.parametrize("n", [1, 40, 70])
@pytest.mark.parametrize("dtype", DTYPES)
def test_scans_and_updates_of_tiles(dtype, n):
    x = (np.random.default_rng(n).random((16, n)) < 0.1).astype(numpy_type(dtype))
    check(f"{dtype}_tiles", [x, np.zeros_like(x), np.zeros_like(x), np.zeros_like(x[0])], n)


@pytest.mark.parametrize("kind", BIT_KINDS)
def test_reductions_of_bits(kind):
    x = np.random.default_rng(0).integers(-(2**20), 2**20, (5, 24)).astype(np.int32)
    check(kind, [x, np.zeros(5, np.int32)], 5)


@pytest.mark.parametrize("dtype", ["int32", "float16", "bfloat16", "float32", "float64"])
def test_no_update_of_two_threads_is_lost(dtype):
    """Ones added to one element, no more than its type counts exactly."""
    n, rounds = {"bfloat16": (64, 1), "float16": (500, 1)}.get(dtype, (1000, 50))
    name, element = f"{dtype}_add", numpy_type(dtype)
    x, at = np.ones(n, element), np.zeros(n, np.int32)
    y, z = np.zeros(8, element), [np.zeros(n, element) for _ in range(2)]
    launch = library(name).images[name].launches[0]
    entry = getattr(library(name)._library, launch.symbol)
    entry.argtypes = [*[ctypes.c_void_p] * 4, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64]
    tile = 64

    def work(old: np.ndarray) -> None:
        pointers = [array.ctypes.data for array in (x, at, y, old)]
        blocks = -(-n // tile)
        for _ in range(rounds):
            entry(*pointers, n, None, 0, blocks // 2)
            entry(*pointers, n, None, blocks // 2, blocks)

    threads = [threading.Thread(target=work, args=(old,)) for old in z]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    entry.argtypes = None
    assert y[0] == len(threads) * 2 * n * rounds


@pytest.mark.parametrize("level", ["aarch64", "x86-64-v2"])
def test_other_targets_need_no_function_of_a_library(level):
    """Code generation refuses symbols that nothing provides."""
    for name in ("int64_add", "float16_add", "bfloat16_max", "float64_min"):
        image = compile_variant(parse_kernel(sources()[name]), parse_target(level), "k")
        assert not any("calls libm" in note for note in told(image.launches[0]))
