"""Small device functions written by hand: what CUDA lowering hands to code generation."""

from __future__ import annotations

from typing import Any

import pytest

from tilec.backends.cuda.codegen.compilers import find_compiler
from tilec.backends.cuda.launch import LoweredCudaLaunch
from tilec.errors import EnvironmentError_
from tilec.lowering.lowered import LoweredKernel

THREADS = 256
LANES = 4


def require_compiler(target: str) -> None:
    """Skips a test where the compilers of this machine do not know ``target``."""
    try:
        find_compiler(target)
    except EnvironmentError_ as missing:
        pytest.skip(missing.what)


def add_func(dtype: str = "float32") -> Any:
    """C[i] = alpha * A[i] + B[i] for i < N, four elements a thread; tensors, the scalar, the dim."""
    from tvm import tirx
    from tvm.script.ir_builder import IRBuilder
    from tvm.tirx.script import builder as T

    with IRBuilder() as builder, T.prim_func(is_private=False, s_tir=False):
        T.func_name("add")
        handles = [T.arg(name, T.handle(dtype, "global")) for name in "ABC"]
        alpha, n = T.arg("alpha", T.float32()), T.arg("N", T.int64())
        a, b, c = (T.decl_buffer((n,), dtype, data=handle) for handle in handles)
        width = T.int64(THREADS * LANES)
        blocks = T.truncdiv(n + width - T.int64(1), width)
        with (
            T.launch_thread("blockIdx.x", blocks) as block,
            T.launch_thread("threadIdx.x", THREADS) as thread,
        ):
            first = block * width + tirx.Cast("int64", thread) * T.int64(LANES)
            with T.serial(0, LANES) as lane:
                at = first + tirx.Cast("int64", lane)
                with T.If(at < n), T.Then():
                    scaled = tirx.Cast(dtype, alpha * tirx.Cast("float32", a[at]))
                    T.buffer_store(c, scaled + b[at], [at])
    return builder.get()


def add(dtype: str = "float32", **launch: Any) -> LoweredKernel:
    """`add_func` as a lowered kernel; ``launch`` overrides fields of its launch."""
    fields = {"grid": (f"(N + {THREADS * LANES - 1}) // {THREADS * LANES}",), "threads": (THREADS, 1, 1)}
    return LoweredKernel("add", (LoweredCudaLaunch(add_func(dtype), **{**fields, **launch}),))
