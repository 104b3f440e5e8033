"""Errors against float64 on every x86-64 level that this machine runs."""

from __future__ import annotations

import math
import platform
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from vector_harness import LEVELS, Compiled, functions, lowered, map_function, ulp_error

from tilec.targets import parse_target, runs_here

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="runs x86-64 code")

_erf = np.vectorize(math.erf, otypes=[np.float64])


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return np.where(x < 0, np.exp(x) / (1 + np.exp(x)), 1 / (1 + np.exp(-x)))


#: name: (float64 reference, where the errors are sampled densely, largest error in ULP)
CASES: dict[str, tuple[Callable[[np.ndarray], np.ndarray], tuple[float, float], float]] = {
    "exp": (np.exp, (-104, 89), 2.0),
    "exp2": (np.exp2, (-150, 129), 2.0),
    "exp10": (lambda x: 10.0**x, (-45, 39), 2.6),
    "sigmoid": (_sigmoid, (-87, 30), 3.5),
    "tanh": (np.tanh, (-10, 10), 6.0),
    "sinh": (np.sinh, (-90, 90), 3.0),
    "cosh": (np.cosh, (-90, 90), 3.0),
    "log": (np.log, (0, 100), 1.5),
    "log2": (np.log2, (0, 100), 1.5),
    "log10": (np.log10, (0, 100), 1.5),
    "log1p": (np.log1p, (-1, 100), 3.0),
    "erf": (_erf, (-5, 5), 6.0),
    "sqrt": (np.sqrt, (0, 100), 0.501),
    "rsqrt": (lambda x: 1 / np.sqrt(x), (0, 100), 1.5),
    "sin": (np.sin, (-100, 100), 2.0),
    "cos": (np.cos, (-100, 100), 2.0),
    "tan": (np.tan, (-100, 100), 4.0),
    "asin": (np.arcsin, (-1, 1), 3.0),
    "acos": (np.arccos, (-1, 1), 3.0),
    "atan": (np.arctan, (-20, 20), 3.0),
    "asinh": (np.arcsinh, (-100, 100), 4.0),
    "acosh": (np.arccosh, (1, 100), 4.0),
    "atanh": (np.arctanh, (-1, 1), 4.0),
}
PAIRS: dict[str, tuple[Callable[[np.ndarray, np.ndarray], np.ndarray], float]] = {
    "atan2": (np.arctan2, 4.0),
    "hypot": (np.hypot, 0.51),
    "pow": (np.power, 0.51),
}
#: Largest |x| for which the error of a periodic function is bounded.
PERIODIC = {"sin": 4e8, "cos": 4e8, "tan": 4e8}
NAMES = (*CASES, "round")
SPECIAL = np.array(
    "0 -0 inf -inf nan 1 -1 1e-45 -1e-45 1e-40 -1e-40 1.2e-38 3.4e38 -3.4e38 88.7228 88.723 -87.33 -87.34 "
    "-103.9 -104 127 128 -149 -150 38.5 38.6".split(),
    dtype=np.float32,
)


@pytest.fixture(params=LEVELS)
def level(request):
    if not runs_here(parse_target(request.param)):
        pytest.skip(f"this machine does not run {request.param}")
    return request.param


def _samples(low: float, high: float) -> np.ndarray:
    """Dense in [low, high], dense near 0 and 1, and random bit patterns of every exponent."""
    rng = np.random.default_rng(7)
    parts = [
        rng.uniform(low, high, 60_000),
        rng.uniform(-1, 1, 30_000),
        1 + rng.normal(0, 1e-3, 10_000),
        rng.normal(0, 1, 10_000) * np.exp2(rng.integers(-120, 0, 10_000)),
    ]
    bits = rng.integers(0, 2**32, 60_000, dtype=np.uint32).view(np.float32)
    return np.concatenate([np.concatenate(parts).astype(np.float32), bits, SPECIAL])


@pytest.mark.parametrize("name", list(CASES))
def test_error_in_ulp(level, name):
    reference, (low, high), limit = CASES[name]
    x = _samples(low, high)
    if name == "sigmoid":
        x = x[~(x < -87.3)]  # smaller results are denormal numbers or 0
    x = x[~(np.abs(x) > PERIODIC.get(name, np.inf))]
    with np.errstate(all="ignore"):
        want = reference(x.astype(np.float64))
    error = ulp_error(functions(level, NAMES)(name, x), want)
    worst = int(np.argmax(np.where(np.isnan(error), np.inf, error)))
    assert error[worst] <= limit, f"{name}({x[worst]}) is {error[worst]:.2f} ULP off"


@pytest.mark.parametrize("name", list(PAIRS))
def test_error_of_two_arguments(level, name):
    reference, limit = PAIRS[name]
    rng = np.random.default_rng(3)
    corners = np.concatenate([SPECIAL, np.array([2, -2, 3, -3, 0.5, -0.5, 2.5, -2.5], dtype=np.float32)])
    grid = [side.ravel() for side in np.meshgrid(corners, corners)]
    bits = [rng.integers(0, 2**32, 40_000, dtype=np.uint32).view(np.float32) for _ in range(2)]
    near = [rng.uniform(0, 20, 40_000).astype(np.float32), rng.uniform(-30, 30, 40_000).astype(np.float32)]
    x, y = (np.concatenate(parts) for parts in zip(grid, bits, near, strict=True))
    with np.errstate(all="ignore"):
        want = reference(x.astype(np.float64), y.astype(np.float64))
    got = functions(level, tuple(PAIRS), arity=2)(name, x, y)
    error = ulp_error(got, want)
    worst = int(np.argmax(np.where(np.isnan(error), np.inf, error)))
    assert error[worst] <= limit, f"{name}({x[worst]}, {y[worst]}) is {error[worst]:.2f} ULP off"
    real = ~np.isnan(want)
    assert np.array_equal(np.signbit(got[real]), np.signbit(want[real]))


@pytest.mark.parametrize("name", ["exp", "log", "tanh", "erf"])
@pytest.mark.parametrize("lanes", [1, 2, 3, 8, 32])
def test_any_lane_count_gives_the_same_bits(name, lanes):
    x = _samples(-20, 20)[:4800]
    some = ("exp", "log", "tanh", "erf")
    narrow = functions("x86-64-v3", some, lanes)(name, x)
    wide = functions("x86-64-v3", some, 16)(name, x)
    same = narrow.view(np.uint32) == wide.view(np.uint32)
    assert (same | (np.isnan(narrow) & np.isnan(wide))).all()


@pytest.mark.parametrize("name", ["exp", "exp2", "sigmoid", "erf"])
@pytest.mark.parametrize("lanes", [1, 4, 8])
def test_avx512_has_ways_of_its_own_with_the_same_bits_for_any_lane_count(name, lanes):
    if not runs_here(parse_target("x86-64-v4")):
        pytest.skip("this machine does not run x86-64-v4")
    x, some = _samples(-104, 89)[-4800:], ("exp", "exp2", "sigmoid", "erf")
    narrow, wide = (functions("x86-64-v4", some, width)(name, x) for width in (lanes, 16))
    assert np.array_equal(narrow, wide, equal_nan=True)


def test_erf_by_pieces_is_closer_than_its_quotient():
    if not runs_here(parse_target("x86-64-v4")):
        pytest.skip("this machine does not run x86-64-v4")
    x = np.nan_to_num(_samples(-5, 5))
    assert np.nanmax(ulp_error(functions("x86-64-v4", NAMES)("erf", x), _erf(x.astype(np.float64)))) <= 3.0


@pytest.mark.parametrize(
    ("name", "x", "want"),
    [
        ("exp", [-np.inf, np.inf, 0, -0.0, 89, -104, np.nan], [0, np.inf, 1, 1, np.inf, 0, np.nan]),
        ("exp2", [-149, -126, 0, 1, 10, 127, 128], [2.0**-149, 2.0**-126, 1, 2, 1024, 2.0**127, np.inf]),
        ("log", [0, -0.0, -1, -np.inf, np.inf, 1], [-np.inf, -np.inf, np.nan, np.nan, np.inf, 0]),
        ("log2", [8, 2.0**-149, 1, 2.0**127], [3, -149, 0, 127]),
        ("log1p", [-1, -2, 0, np.inf, 1e-20], [-np.inf, np.nan, 0, np.inf, 1e-20]),
        ("tanh", [np.inf, -np.inf, 0, 20, np.nan], [1, -1, 0, 1, np.nan]),
        ("erf", [np.inf, -np.inf, 0, 5, np.nan], [1, -1, 0, 1, np.nan]),
        ("sigmoid", [np.inf, -np.inf, 0, -100, 100, np.nan], [1, 0, 0.5, 0, 1, np.nan]),
        ("rsqrt", [0, np.inf, -1, 4], [np.inf, 0, np.nan, 0.5]),
        ("sqrt", [0, np.inf, -1, 4], [0, np.inf, np.nan, 2]),
        ("round", [0.5, 2.5, -0.5, 0.49999997, 8388609, np.inf], [1, 3, -1, 0, 8388609, np.inf]),
        ("sin", [0, np.inf, 1e16, np.nan], [0, np.nan, np.nan, np.nan]),
        ("cos", [0, -np.inf, np.nan], [1, np.nan, np.nan]),
        ("atan", [0, 1e-45], [0, 1e-45]),
        ("acosh", [1, 0.5, -1e9, np.inf], [0, np.nan, np.nan, np.inf]),
        ("atanh", [1, -1, 2, 0, np.inf], [np.inf, -np.inf, np.nan, 0, np.nan]),
    ],
)
def test_exact_results(level, name, x, want):
    got = functions(level, NAMES)(name, np.array(x, dtype=np.float32))
    assert np.array_equal(got, np.array(want, dtype=np.float32), equal_nan=True)


@pytest.mark.parametrize(
    "name", ["asin", "asinh", "atan", "atanh", "erf", "log1p", "round", "sin", "sinh", "sqrt", "tan", "tanh"]
)
def test_zeros_keep_their_sign(level, name):
    zeros = np.array([0.0, -0.0] * 8, dtype=np.float32)
    got = functions(level, NAMES)(name, zeros)
    assert not got.any()
    assert np.array_equal(np.signbit(got), np.signbit(zeros))


@pytest.mark.parametrize("name", ["tanh", "erf"])
def test_odd_and_bounded(level, name):
    x = np.abs(_samples(-10, 10))
    call = functions(level, NAMES)
    positive, negative = call(name, x), call(name, -x)
    assert np.array_equal(positive, -negative, equal_nan=True)
    assert np.nanmax(positive) == 1.0


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("name", ["exp", "log1p", "sigmoid", "rsqrt", "erf", "round"])
def test_float64_through_libm(name, lanes):
    reference = CASES[name][0] if name in CASES else lambda x: np.trunc(x + 0.5)
    x = np.linspace(0.01, 20, 400)
    got = functions("x86-64-v2", (name,), lanes, "float64")(name, x)
    assert np.allclose(got, reference(x), rtol=1e-15, atol=0)


@pytest.mark.parametrize("lanes", [1, 16])
def test_scalar_functions_of_float32(lanes):
    rng = np.random.default_rng(11)
    x, y = (rng.normal(0, 10, 320).astype(np.float32) for _ in range(2))
    call = functions("x86-64-v2", ("fmod", "nextafter", "copysign"), lanes, arity=2)
    assert np.array_equal(call("fmod", x, y), np.fmod(x, y))
    assert np.array_equal(call("nextafter", x, y), np.nextafter(x, y))
    assert np.array_equal(call("copysign", x, y), np.copysign(x, y))


@pytest.mark.parametrize("power", [-400, -149, -127, -1, 0, 1, 127, 200, 400])
def test_ldexp_rounds_once(power):
    from tvm import tirx

    body = map_function(
        lambda x: tirx.ldexp(x, tirx.Broadcast(tirx.const(power, "int32"), 8)), "float32", "float32", 8
    )
    x = np.array([1, 1.5, -1.9999999, 1e-45, 3e38, 1e-40, np.inf, np.nan], dtype=np.float32)
    got = Compiled(lowered(body), parse_target("x86-64-v3")).run(0, x)
    with np.errstate(over="ignore"):
        want = (x.astype(np.float64) * 2.0**power).astype(np.float32)
    assert np.array_equal(got, want, equal_nan=True)


def test_the_page_states_the_tested_bounds():
    page = (Path(__file__).parents[5] / "docs" / "cpu-math.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| ([\d.]+) \|", page, flags=re.MULTILINE))
    bounds = {name: case[-1] for name, case in [*CASES.items(), *PAIRS.items()]}
    assert {name: float(bound) for name, bound in rows.items()} == bounds
