from __future__ import annotations

import platform

import numpy as np
import pytest
from vector_harness import LEVELS, Compiled, lowered, map_function

from tilec.lowering.math.float8 import FLOAT8_TYPES, decode_float8, encode_float8, round_float8
from tilec.targets import parse_target, runs_here

ml_dtypes = pytest.importorskip("ml_dtypes")
pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="runs x86-64 code")


@pytest.fixture(params=[level for level in LEVELS if "+" not in level])
def target(request):
    target = parse_target(request.param)
    if not runs_here(target):
        pytest.skip(f"this machine does not run {request.param}")
    return target


def _convert(target, function, dtype, source, result, lanes, x):
    body = map_function(lambda value: function(value, dtype), source, result, lanes)
    return Compiled(lowered(body), target).run(0, x, out=np.empty(x.size, result))


def _saturate_and_encode(value, dtype):
    return encode_float8(round_float8(value, dtype), dtype)


@pytest.mark.parametrize("dtype", FLOAT8_TYPES)
@pytest.mark.parametrize("lanes", [1, 16])
def test_every_byte_decodes(target, dtype, lanes):
    raw = np.arange(256, dtype=np.uint8)
    got = _convert(target, decode_float8, dtype, "uint8", "float32", lanes, raw)
    assert np.array_equal(got, raw.view(getattr(ml_dtypes, dtype)).astype(np.float32), equal_nan=True)


@pytest.mark.parametrize("dtype", FLOAT8_TYPES)
@pytest.mark.parametrize("lanes", [1, 16])
@pytest.mark.parametrize("finite_only", [False, True])
def test_encoding_rounds_to_nearest_even(target, dtype, lanes, finite_only):
    kind = getattr(ml_dtypes, dtype)
    finite = np.arange(256, dtype=np.uint8).view(kind).astype(np.float32)
    finite = np.unique(finite[np.isfinite(finite)])
    ties = (finite[1:] + finite[:-1]) / 2
    near = [np.nextafter(ties, np.float32(side), dtype=np.float32) for side in (-np.inf, np.inf)]
    random = np.random.default_rng(2).integers(0, 2**32, 4096, dtype=np.uint32).view(np.float32)
    corners = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e9, -1e9, 1e-45], dtype=np.float32)
    x = np.concatenate([finite, ties, *near, random, corners])
    x = np.pad(x, (0, -x.size % 16))
    encode = _saturate_and_encode if finite_only else encode_float8
    got = _convert(target, encode, dtype, "float32", "uint8", lanes, x)
    largest = float(ml_dtypes.finfo(kind).max)
    keep = np.isinf(x) & (dtype == "float8_e5m2") & (not finite_only)
    with np.errstate(invalid="ignore"):
        want = np.where(keep, x, np.clip(x, -largest, largest)).astype(kind).astype(np.float32)
    assert np.array_equal(got.view(kind).astype(np.float32), want, equal_nan=True)
