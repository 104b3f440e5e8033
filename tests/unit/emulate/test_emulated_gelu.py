"""1 + erf(x) as epilogues on sm_90a compute it, run by the emulator beside float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from emulated import SM90A, kernel_of
from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from tilec.backends.cuda.codegen.images import source
from tilec.backends.cuda.device.floats import ONE_PLUS_ERF
from tilec.backends.cuda.launch import LoweredCudaLaunch
from tilec.backends.cuda.warp_roles.epilogue import one_plus_erf
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.emulate import Emulator, Tensor
from tilec.ir.guards import Guard
from tilec.lowering.lowered import LoweredKernel

THREADS = 256


def device_function() -> Any:
    """y[i] = 1 + erf(x[i])."""
    with IRBuilder() as builder, T.prim_func(is_private=False, s_tir=False):
        T.func_name("kernel")
        handles = [T.arg(name, T.handle("float32", "global")) for name in "xy"]
        x, y = (T.decl_buffer((1 << 20,), "float32", data=handle) for handle in handles)
        with T.launch_thread("blockIdx.x", 16) as block, T.launch_thread("threadIdx.x", THREADS) as thread:
            at = block * THREADS + thread
            T.buffer_store(y, ONE_PLUS_ERF.call(x[at]), [at])
    return builder.get()


def computed(values: np.ndarray) -> np.ndarray:
    """1 + erf of 16 * THREADS values."""
    result = np.zeros_like(values)
    launch = LoweredCudaLaunch(device_function(), ("16",), (THREADS, 1, 1))
    Emulator(LoweredKernel("kernel", (launch,), ()), SM90A).run(
        [Tensor(values, "x"), Tensor(result, "y")], {}, {}
    )
    return result


def test_error_beside_float64():
    values = np.linspace(-4.25, 8.0, 16 * THREADS).astype(np.float32)
    exact = np.array([math.erfc(-value) for value in values.astype(np.float64)])
    error = np.abs(computed(values) - exact)
    assert error.max() < 8.5e-7
    assert (error / exact).max() < 6e-5


def test_ends_and_nan():
    values = np.resize(np.float32([np.inf, -np.inf, 0.0, -30.0, 9.0, np.nan]), 16 * THREADS)
    np.testing.assert_array_equal(computed(values)[:6], np.float32([2, 0, 1, 0, 2, np.nan]))


def test_only_sums_of_one_and_erf_are_taken():
    x = tirx.Var("x", "float32")
    one = tirx.const(1.0, "float32")
    assert one_plus_erf(one + tirx.erf(x)).same_as(x)
    assert one_plus_erf(tirx.erf(x) + one).same_as(x)
    assert one_plus_erf(tirx.erf(x) + x) is None
    assert one_plus_erf(one - tirx.erf(x)) is None


def test_a_gelu_epilogue_uses_it():
    config = {"bM": 128, "bN": 128, "bK": 64, "num_stages": 4, "threads": 256}
    dims = {"M": Guard(), "N": Guard(div=8), "K": Guard(div=8)}
    kernel = kernel_of("gemm.py:linear", dims, {"activation": "gelu", "dtype": "float16"}, **config)
    text = source(to_tir(lower(kernel, SM90A), SM90A), SM90A, "linear")
    assert "tilec_one_plus_erf(" in text
    assert "tilec_erf(" not in text
