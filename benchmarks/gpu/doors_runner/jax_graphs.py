"""Functions of JAX inside of the graphs that XLA makes of two calls and more (command buffers)."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from checks import HERE, Env, check
from jax_env import agree, floats, opened, wide

#: Read by XLA when it is loaded.
_FLAGS = "--xla_gpu_enable_command_buffer=FUSION,CUSTOM_CALL,CUBLAS --xla_gpu_graph_min_graph_size=2"


def functions_of(env: Env) -> Any:
    """The functions, in a process whose XLA makes graphs."""
    if env.device == "cuda":
        os.environ["XLA_FLAGS"] = _FLAGS
    return opened(env)


@check("a chain of calls with workspaces gives what new inputs ask for")
def _(env: Env) -> None:
    functions = functions_of(env)
    import jax

    @jax.jit
    def run(x: Any, w: Any) -> Any:
        for _ in range(4):
            halves = functions["product"](x.reshape(-1), w.reshape(-1), 0.5).reshape(x.shape)
            x = halves + functions["repeated"](functions["column_sums"](x), m=x.shape[0]) / x.shape[0]
        return x

    kept = []
    for number in range(6):
        x, w = floats(40, 1000, seed=number), floats(40, 1000, seed=100 + number)
        wanted = wide(x)
        for _ in range(4):
            wanted = 0.5 * wanted * wide(w) + wanted.mean(0)
        kept.append((run(x, w), wanted))
    for found, wanted in kept:
        agree(found, wanted)


@check("products of 16-bit floats behind each other")
def _(env: Env) -> None:
    functions = functions_of(env)
    import jax

    @jax.jit
    def run(a: Any, b: Any) -> Any:
        for _ in range(3):
            a = functions["matmul_bfloat16"](a, b)
        return functions["rms_norm_bfloat16"](a, b[0])

    for number in range(4):
        a, b = floats(48, 64, dtype="bfloat16", seed=number), floats(64, 64, dtype="bfloat16", seed=9) / 8
        x = wide(a) @ wide(b) @ wide(b) @ wide(b)
        wanted = x / np.sqrt((x**2).mean(1, keepdims=True) + 1e-6) * wide(b[0])
        off = float(np.linalg.norm(wide(run(a, b)) - wanted) / np.linalg.norm(wanted))
        assert off < 3e-2, off


@check("a loop that XLA may take into a graph")
def _(env: Env) -> None:
    product = functions_of(env)["product"]
    import jax

    def step(_: Any, kept: Any) -> Any:
        x, w = kept
        return product(product(x, w, 0.5), w, 0.5), w

    run = jax.jit(lambda x, w: jax.lax.fori_loop(0, 10, step, (x, w))[0])
    for number in range(4):
        x, w = floats(4096, seed=number), abs(floats(4096, seed=9)) + 1.5
        agree(run(x, w), wide(x) * (0.5 * wide(w)) ** 20)


@check("how often XLA calls the library")
def _(env: Env) -> str:
    """A target of its own counts, with what else there is as for a function."""
    functions_of(env)
    import jax
    import jax_tvm_ffi
    import tvm_ffi

    entry = tvm_ffi.load_module(str(HERE / "lib" / "libdoors.so"))["doors_product"]
    calls = []

    def counted(*arguments: Any) -> None:
        calls.append(1)
        entry(*arguments)

    jax_tvm_ffi.register_ffi_target(
        "counted",
        tvm_ffi.convert(counted),
        ["args", "attrs.a", "rets"],
        platform="gpu" if env.device == "cuda" else "cpu",
        allow_cuda_graph=True,
        pass_owned_tensor=True,
    )

    @jax.jit
    def run(x: Any, w: Any) -> Any:
        for _ in range(4):
            x = jax.ffi.ffi_call("counted", jax.ShapeDtypeStruct(x.shape, x.dtype))(x, w, a=np.float64(0.5))
        return x

    w = floats(4096, seed=9)
    for number in range(20):
        x = floats(4096, seed=number)
        agree(run(x, w), wide(x) * (0.5 * wide(w)) ** 4)
    return f"{len(calls)} times in 20 runs of 4 calls"
