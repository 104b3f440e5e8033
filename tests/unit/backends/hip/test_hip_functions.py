"""C's functions as AMD GPUs get them, compiled for the host beside NumPy in float64."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from linked import link
from test_hip_code import HOST

from tilec.backends.hip.codegen.functions import FUNCTIONS, needed
from tilec.backends.hip.codegen.header import MATH

#: To 80 digits.
PI = Decimal("3.1415926535897932384626433832795028841971693993751058209749445923078164062862089986")
INF, NAN = float("inf"), float("nan")
#: Functions of one number: NumPy's, where they are tried, and how far off they may be, of themselves.
ONE: dict[str, tuple[Callable[..., Any], tuple[float, float], float]] = {
    "round": (lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x), (-1e4, 1e4), 0),
    "nearbyint": (np.rint, (-1e4, 1e4), 0),
    "exp10": (lambda x: 10.0**x, (-37, 38), 5e-7),
    "log10": (np.log10, (1e-38, 1e38), 3e-7),
    "log1p": (np.log1p, (-0.99, 1e9), 4e-7),
    "sin": (np.sin, (-1e5, 1e5), 2e-7),
    "cos": (np.cos, (-1e5, 1e5), 2e-7),
    "tan": (np.tan, (-1e5, 1e5), 4e-7),
    "atan": (np.arctan, (-50, 50), 3e-7),
    "asin": (np.arcsin, (-1, 1), 5e-7),
    "acos": (np.arccos, (-1, 1), 5e-7),
    "tanh": (np.tanh, (-12, 12), 4e-7),
    "sinh": (np.sinh, (-88, 88), 1e-6),
    "cosh": (np.cosh, (-88, 88), 1e-6),
    "asinh": (np.arcsinh, (-1e6, 1e6), 6e-7),
    "acosh": (np.arccosh, (1.0001, 1e6), 2e-6),
    "atanh": (np.arctanh, (-0.9999, 0.9999), 6e-7),
    "__exp": (np.exp, (-20, 20), 3e-6),
    "__exp10": (lambda x: 10.0**x, (-8, 8), 3e-6),
    "__log": (np.log, (2, 1e6), 3e-7),
    "__log2": (np.log2, (2, 1e6), 3e-7),
    "__log10": (np.log10, (2, 1e6), 3e-7),
    "__sin": (np.sin, (0.5, 2.5), 5e-6),
    "__cos": (np.cos, (-1, 1), 5e-6),
    "__tan": (np.tan, (0.3, 1.2), 5e-6),
}
TWO: dict[str, tuple[Callable[..., Any], tuple[float, float], tuple[float, float], float]] = {
    "pow": (np.power, (1e-6, 1e6), (-6, 6), 2e-7),
    "fmod": (np.fmod, (-1e30, 1e30), (-1e4, 1e4), 0),
    "atan2": (np.arctan2, (-1e3, 1e3), (-1e3, 1e3), 4e-7),
    "hypot": (np.hypot, (-1e30, 1e30), (-1e30, 1e30), 1e-7),
    "copysign": (np.copysign, (-10, 10), (-10, 10), 0),
}

#: Functions that count bits, of numbers of which type.
COUNTS = {"__popc": "unsigned", "__clz": "unsigned", "__popcll": "unsigned long", "__clzll": "unsigned long"}
#: Types of whole numbers: in C, and in ctypes.
INTEGERS = {
    "int32": ("int", ctypes.c_int32),
    "uint32": ("unsigned", ctypes.c_uint32),
    "int64": ("long", ctypes.c_int64),
    "uint64": ("unsigned long", ctypes.c_uint64),
}


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder: Path = tmp_path_factory.mktemp("functions")
    source, library = folder / "functions.cpp", folder / "functions.so"
    doors = [
        f'extern "C" void many_{name}(int n, const float* x, const float* y, float* out) '
        f"{{ for (int i = 0; i < n; i++) out[i] = {name}f(x[i]{', y[i]' * (number > 1)}); }}"
        for names, number in ((ONE, 1), ((*TWO, "nextafter"), 2))
        for name in names
    ]
    doors += [
        f'extern "C" {kind} {name}_{dtype}({kind} x, {kind} y) {{ return {name}(x, y); }}'
        for dtype, (kind, _) in INTEGERS.items()
        for name in ("min", "max")
    ]
    doors += [
        f'extern "C" int count_{name}({kind} x) {{ return {name}(x); }}' for name, kind in COUNTS.items()
    ]
    body = "\n".join(doors)
    source.write_text(f"{HOST}\n#define __noinline__ static\nnamespace {{{MATH}{needed(body)}\n{body}}}")
    flags = ("-x", "c++", "-std=c++20", "-ffreestanding", "-fno-builtin", "-w", "-shared", "-fPIC")
    link(*flags, source, "-o", library, "-lm")
    return ctypes.CDLL(str(library))


def computed(host: ctypes.CDLL, name: str, x: Any, y: Any = 0.0) -> np.ndarray:
    arrays = [np.ascontiguousarray(each, np.float32) for each in np.broadcast_arrays(x, np.float32(y))]
    out = np.empty_like(arrays[0])
    getattr(host, f"many_{name}")(
        out.size, *(each.ctypes.data_as(ctypes.c_void_p) for each in (*arrays, out))
    )
    return out


@pytest.mark.parametrize("dtype", INTEGERS)
def test_bounds_of_whole_numbers(host: ctypes.CDLL, dtype: str) -> None:
    info = np.iinfo(dtype)
    for name, kept in (("min", min), ("max", max)):
        door = getattr(host, f"{name}_{dtype}")
        door.argtypes, door.restype = [INTEGERS[dtype][1]] * 2, INTEGERS[dtype][1]
        for pair in ((info.min, info.max), (info.max, 3), (7, 7)):
            assert door(*pair) == kept(pair)


@pytest.mark.parametrize("name", COUNTS)
def test_bits_are_counted(host: ctypes.CDLL, name: str) -> None:
    bits = 64 if name.endswith("ll") else 32
    door = getattr(host, f"count_{name}")
    door.argtypes = [ctypes.c_uint64 if bits == 64 else ctypes.c_uint32]
    for value in (0, 1, 3, 1 << 31, 0x12345678, (1 << bits) - 1):
        set_bits = value.bit_count()
        assert door(value) == (set_bits if "popc" in name else bits - value.bit_length()), value


def spread(low: float, high: float, seed: int, count: int = 20000) -> np.ndarray:
    """Numbers between the two, evenly and by their logarithms."""
    rng = np.random.default_rng(seed)
    size = max(abs(low), abs(high))
    small = rng.choice([-1, 1], count) * np.exp(rng.uniform(np.log(1e-6), np.log(size), count))
    found = np.concatenate([rng.uniform(low, high, count), small[(small > low) & (small < high)]])
    return found.astype(np.float32)


@pytest.mark.parametrize("name", ONE)
def test_functions_of_one_number(host: ctypes.CDLL, name: str) -> None:
    function, (low, high), rtol = ONE[name]
    x = spread(low, high, 1)
    with np.errstate(all="ignore"):
        assert np.allclose(computed(host, name, x), function(x.astype(np.float64)), rtol=rtol, atol=2e-38)
        edges = np.float32([0.0, -0.0, INF, -INF, NAN, 3.0, -3.0])
        wanted = function(edges.astype(np.float64)).astype(np.float32)
    found = computed(host, name, edges)
    assert np.allclose(found, wanted, rtol=max(rtol, 1e-6), equal_nan=True), (found, wanted)


@pytest.mark.parametrize("name", TWO)
def test_functions_of_two_numbers(host: ctypes.CDLL, name: str) -> None:
    function, first, second, rtol = TWO[name]
    x = spread(*first, 1)
    y = np.resize(np.random.default_rng(2).permutation(spread(*second, 3)), x.size)
    with np.errstate(all="ignore"):
        wanted = function(x.astype(np.float64), y.astype(np.float64)).astype(np.float32)
        assert np.allclose(
            computed(host, name, x, y), wanted, rtol=max(rtol, 1e-7) if rtol else 0, atol=1e-44
        )
        edges = np.float32([0.0, -0.0, 1.0, -1.0, 2.0, -3.0, 0.5, INF, -INF, NAN, 1e-40])
        a, b = (each.ravel() for each in np.meshgrid(edges, edges))
        wanted = function(a, b)
    found = computed(host, name, a, b)
    assert np.allclose(found, wanted, rtol=1e-6, equal_nan=True), [
        each for each in zip(a, b, found, wanted, strict=True) if not np.allclose(*each[2:], equal_nan=True)
    ]


def test_turns_of_any_number(host: ctypes.CDLL) -> None:
    x = np.float32([1e5, 123456.0, 3.3e7, 3.4e7, 1e10, 1.7e22, -8.1e30, 3.4e38, 2.0**100])
    with localcontext() as context:
        context.prec = 90
        angles = [float(Decimal(float(each)) % (2 * PI)) for each in x]
    assert np.allclose(computed(host, "sin", x), np.sin(angles), rtol=3e-7)
    assert np.allclose(computed(host, "cos", x), np.cos(angles), rtol=3e-7)


def test_the_next_number(host: ctypes.CDLL) -> None:
    x = np.float32([0.0, -0.0, 1.0, -1.0, 1e-45, -1e-45, 3.4e38, INF, NAN, 5.0])
    for to in (INF, -INF, 0.0):
        wanted = np.nextafter(x, np.float32(to))
        assert np.array_equal(computed(host, "nextafter", x, to), wanted, equal_nan=True)


def test_a_header_has_what_is_called_and_no_more() -> None:
    assert needed("y = x + 1;") == ""
    assert [name for name in FUNCTIONS if f" {name}(" in needed("y = htanh(x);")] == ["tanhf"]
