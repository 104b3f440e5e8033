"""erf as CUDA computes it, run by the emulator beside float64."""

from __future__ import annotations

import math

import numpy as np

from tilec.emulate import EmulatedKernel
from tilec.ir.text.parser import parse_kernel
from tilec.targets import parse_target

COUNT = 4096
KERNEL = f"""
kernel("error_function")
x = tensor(float32, ({COUNT},), ("{COUNT}",), access="in")
y = tensor(float32, ({COUNT},), ("{COUNT}",), access="out")
with launch(1, threads=(128, 1, 1)) as (b,):
    for i in parallel({COUNT}):
        y[i] = erf(x[i])
"""


def computed(values: np.ndarray) -> np.ndarray:
    """erf of COUNT values."""
    result = np.empty_like(values)
    EmulatedKernel(parse_kernel(KERNEL.lstrip()), parse_target("sm_90a"))([values, result], {})
    return result


def test_error_in_units_of_the_last_place():
    near = np.geomspace(1e-30, 6.0, COUNT // 2)
    values = np.concatenate([-near, near]).astype(np.float32)
    exact = np.array([math.erf(value) for value in values.astype(np.float64)])
    result = computed(values)
    assert np.all(np.abs(result) <= 1.0)
    assert np.max(np.abs(result - exact) / np.spacing(np.abs(exact).astype(np.float32))) < 6.0


def test_ends_and_nan():
    values = np.resize(np.float32([np.inf, -np.inf, 0.0, 5.0, np.nan, 3e38]), COUNT)
    np.testing.assert_array_equal(computed(values)[:6], np.float32([1, -1, 0, 1, np.nan, 1]))


def test_powers_of_two_in_float64():
    kernel = parse_kernel(KERNEL.lstrip().replace("float32", "float64").replace("erf(", "exp2("))
    values, result = np.linspace(-3, 3, COUNT), np.empty(COUNT)
    EmulatedKernel(kernel, parse_target("sm_90a"))([values, result], {})
    np.testing.assert_allclose(result, np.exp2(values), rtol=1e-6)
