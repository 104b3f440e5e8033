"""Sines and cosines as CUDA code computes them, compiled for the host beside NumPy in float64."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest
from linked import link

from tilec.backends.cuda.codegen.sines import SINES, with_sines

_HEAD = """
#include <math.h>
#define __device__ static
#define __forceinline__ inline
#define __noinline__
static int __float_as_int(float x) { return __builtin_bit_cast(int, x); }
"""
_DOOR = """
extern "C" void many_{0}(int n, const float* x, float* out) {{ while (n--) out[n] = tilec_{0}(x[n]); }}
"""
WAVES = {"sin": np.sin, "cos": np.cos}


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder: Path = tmp_path_factory.mktemp("sines")
    source, library = folder / "sines.cpp", folder / "sines.so"
    source.write_text(_HEAD + SINES + "".join(map(_DOOR.format, WAVES)))
    link("-x", "c++", "-std=c++20", "-O1", "-w", "-shared", "-fPIC", source, "-o", library, "-lm")
    return ctypes.CDLL(str(library))


def computed(host: ctypes.CDLL, name: str, x: np.ndarray) -> np.ndarray:
    out = np.empty_like(x)
    pointers = (each.ctypes.data_as(ctypes.c_void_p) for each in (x, out))
    getattr(host, f"many_{name}")(x.size, *pointers)
    return out


@pytest.mark.parametrize("name", WAVES)
def test_waves_are_off_by_two_units_at_most(host: ctypes.CDLL, name: str) -> None:
    rng = np.random.default_rng(0)
    near_zeros = np.arange(-60000, 60000) * (np.pi / 2)
    x = np.concatenate([rng.uniform(-bound, bound, 40000) for bound in (1e-3, 1, 100, 1e5)] + [near_zeros])
    x = x.astype(np.float32)
    wanted = WAVES[name](x.astype(np.float64))
    unit = np.spacing(np.abs(wanted).astype(np.float32)).astype(np.float64)
    assert (np.abs(computed(host, name, x) - wanted) / unit).max() < 2


@pytest.mark.parametrize("name", WAVES)
def test_large_and_special_numbers(host: ctypes.CDLL, name: str) -> None:
    x = np.array([2e5, -7e8, 3e38, 0.0, -0.0, np.inf, -np.inf, np.nan], np.float32)
    with np.errstate(invalid="ignore"):
        wanted = WAVES[name](x.astype(np.float64)).astype(np.float32)
    found = computed(host, name, x)
    np.testing.assert_allclose(found, wanted, rtol=3e-7)
    assert (np.signbit(found) == np.signbit(wanted))[:5].all()


def test_calls_are_of_the_functions_above() -> None:
    made = with_sines("float y = cosf(x) + __sinf(x);")
    assert made.startswith(SINES)
    assert made.endswith("float y = tilec_cos(x) + __sinf(x);")
    assert with_sines("double y = cos(x);") == "double y = cos(x);"


def test_what_the_header_names_and_nobody_calls_stays() -> None:
    header = "TILEC_MATH(hsin, sinf) TILEC_MATH(hcos, cosf) "
    assert with_sines(header) == header
    assert with_sines(header + "half y = hsin(x);").endswith("(hcos, tilec_cos) half y = hsin(x);")
