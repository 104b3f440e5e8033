"""Functions of JAX: compiled, mapped, differentiated, on streams, from threads, refused, exported, timed."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from checks import Env, LeftOut, check, in_threads
from jax_env import agree, floats, opened, refused, wide

#: (M, N, K) of products: few rows, many, rows that no tensor map takes.
PRODUCTS = ((37, 136, 128), (300, 264, 192), (70, 133, 77))


@check("the arrays lie where the checks are")
def _(env: Env) -> str:
    opened(env)
    import jax

    device = jax.devices()[0]
    assert device.platform == ("gpu" if env.device == "cuda" else "cpu"), device
    return f"jax {jax.__version__} on {device.device_kind}"


@check("products of 16-bit floats")
def _(env: Env) -> None:
    functions = opened(env)
    import jax

    for dtype in ("float16", "bfloat16"):
        run = jax.jit(functions[f"matmul_{dtype}"])
        for m, n, k in PRODUCTS:
            a, b = floats(m, k, dtype=dtype), floats(k, n, dtype=dtype, seed=1)
            agree(run(a, b), wide(a) @ wide(b), dtype)


@check("products of 8-bit floats")
def _(env: Env) -> None:
    functions = opened(env)
    import jax

    run = jax.jit(lambda a, w: functions["linear_fp8"](a, w, 0.25))
    for m, n, k in PRODUCTS:
        a, w = floats(m, k, dtype="float8_e4m3fn"), floats(n, k, dtype="float8_e4m3fn", seed=1)
        agree(run(a, w), 0.25 * wide(a) @ wide(w).T, "bfloat16")


@check("norms of rows")
def _(env: Env) -> None:
    functions = opened(env)
    for dtype in ("float16", "bfloat16", "float32"):
        x, weight = floats(50, 128, dtype=dtype), floats(128, dtype=dtype, seed=1)
        of_rows = wide(x) / np.sqrt((wide(x) ** 2).mean(1, keepdims=True) + 1e-6)
        agree(functions[f"rms_norm_{dtype}"](x, weight), of_rows * wide(weight), dtype)


@check("called at once, and inside of what is compiled")
def _(env: Env) -> None:
    product = opened(env)["product"]
    import jax

    x, w = floats(1000), floats(1000, seed=1)
    agree(product(x, w, 2.0), 2 * wide(x) * wide(w))
    agree(jax.jit(lambda x, w: product(x + 1, w, 2.0) - 1)(x, w), 2 * (wide(x) + 1) * wide(w) - 1)


@check("a dim that the caller says, and no elements")
def _(env: Env) -> None:
    functions = opened(env)
    x = floats(777)
    agree(functions["repeated"](x, m=3), np.tile(wide(x), (3, 1)))
    assert functions["repeated"](x, m=0).shape == (0, 777)
    assert functions["product"](x[:0], x[:0], 1.0).shape == (0,)


@check("workspaces that grow and shrink, called at once and compiled")
def _(env: Env) -> None:
    sums = opened(env)["column_sums"]
    import jax

    for m, n in ((10, 30), (200, 5000), (7, 64), (100, 20000)):
        x = floats(m, n)
        agree(sums(x), wide(x).sum(0))
        agree(jax.jit(lambda x: 2 * sums(x))(x), 2 * wide(x).sum(0))


@check("several workspaces in one function")
def _(env: Env) -> None:
    sums = opened(env)["column_sums"]
    import jax

    inputs = [floats(50 + each, 1000 * (each + 1), seed=each) for each in range(4)]
    made = jax.jit(lambda given: [sums(each) for each in given])(inputs)
    for found, x in zip(made, inputs, strict=True):
        agree(found, wide(x).sum(0))


@check("mapped over an axis")
def _(env: Env) -> None:
    functions = opened(env)
    import jax

    a, b, rows = floats(3, 37, 128, dtype="float16"), floats(128, 136, dtype="float16"), floats(4, 60, 500)
    mapped = jax.jit(jax.vmap(functions["matmul_float16"], in_axes=(0, None)))
    agree(mapped(a, b), wide(a) @ wide(b), "float16")
    agree(jax.vmap(functions["column_sums"])(rows), wide(rows).sum(1))


@check("gradients, of a mapped function and in a loop, too")
def _(env: Env) -> None:
    product = opened(env)["product"]
    import jax
    import jax.numpy as jnp

    x, w = floats(6, 500), floats(500, seed=1)

    def loss(f: Callable[..., Any]) -> Any:
        def scanned(x: Any, w: Any) -> Any:
            step = lambda kept, row: (f(kept, row) + row, None)  # noqa: E731
            return jnp.sin(jax.lax.scan(step, w, x)[0]).sum() + jnp.cos(jax.vmap(f, (0, None))(x, w)).sum()

        return jax.jit(jax.grad(scanned, argnums=(0, 1)))

    found = loss(lambda x, w: product(x, w, 0.5))(x, w)
    expected = loss(lambda x, w: 0.5 * x * w)(x, w)
    for each, wanted in zip(found, expected, strict=True):
        agree(each, wide(wanted))


@check("a call returns before what it waits for has run", cuda=True)
def _(env: Env) -> str:
    functions = opened(env)
    import jax

    def slow(x: Any) -> Any:
        return jax.lax.fori_loop(0, 200, lambda _, y: y @ x / 64, x)

    behind = jax.jit(
        lambda x: functions["column_sums"](functions["product"](x[0], x[1], 2.0).reshape(64, -1))
    )
    late, x = jax.jit(slow), floats(4096, 4096)
    wanted = behind(late(x)).block_until_ready()
    begin = time.perf_counter()
    found = behind(late(x))
    returned = time.perf_counter() - begin
    found.block_until_ready()
    ran = time.perf_counter() - begin
    assert bool((found == wanted).all())
    assert returned < ran / 2, f"it returned after {returned * 1e3:.1f} of {ran * 1e3:.1f} ms"
    return f"it returned after {returned * 1e3:.1f} of {ran * 1e3:.1f} ms"


@check("calls from several threads")
def _(env: Env) -> None:
    functions = opened(env)
    import jax

    inputs = [floats(100 + 10 * each, 3000, seed=each) for each in range(4)]
    a, b = floats(64, 128, dtype="float16"), floats(128, 136, dtype="float16")

    def work(number: int) -> None:
        x = inputs[number]
        run = jax.jit(lambda x, a, b: (functions["column_sums"](x), functions["matmul_float16"](a, b)))
        for _ in range(20):
            sums, product = run(x, a, b)
            agree(sums, wide(x).sum(0))
            agree(product, wide(a) @ wide(b), "float16")

    in_threads(work, 4)


@check("a buffer that is given away")
def _(env: Env) -> None:
    product = opened(env)["product"]
    import jax

    x, w = floats(4096), floats(4096, seed=1)
    wanted = 2 * wide(x) * wide(w)
    run = jax.jit(lambda x, w: product(x, w, 2.0), donate_argnums=0)
    agree(run(x, w), wanted)
    assert x.is_deleted()


@check("the arrays say which platform it is", cuda=True)
def _(env: Env) -> None:
    functions = opened(env)
    import jax

    x = jax.device_put(floats(60, 500), jax.devices("cpu")[0])
    for run in (functions["column_sums"], jax.jit(functions["column_sums"])):
        found = run(x)
        assert found.devices() == x.devices()
        agree(found, wide(x).sum(0))
    agree(functions["on_cpus_alone"](x[0], x[1], 2.0), 2 * wide(x[0]) * wide(x[1]))


@check("a second GPU", cuda=True)
def _(env: Env) -> None:
    functions = opened(env)
    import jax

    if len(jax.devices()) < 2:
        raise LeftOut("this machine has one GPU")
    x = jax.device_put(floats(60, 500), jax.devices()[1])
    found = functions["column_sums"](x)
    assert found.devices() == x.devices()
    agree(found, wide(x).sum(0))


@check("types and shapes that do not fit are errors, and calls go on")
def _(env: Env) -> None:
    functions = opened(env)
    import jax

    a, b = floats(32, 64, dtype="float16"), floats(64, 40, dtype="float16")
    run = jax.jit(functions["matmul_float16"])
    refused("TypeError", "expected float16", run, a.astype("float32"), b)
    refused("TypeError", "expected float16", run, a, b[:60])
    refused("TypeError", "no gradient", jax.grad(lambda x: functions["column_sums"](x).sum()), floats(3, 4))
    agree(run(a, b), wide(a) @ wide(b), "float16")


@check("a kernel without code for a GPU says so, and calls go on", cuda=True)
def _(env: Env) -> str:
    functions = opened(env)
    import jax

    x, w = floats(1000), floats(1000, seed=1)
    said = refused(
        "Exception", "TILEC_ERR_NO_ARCH", jax.jit(lambda x: functions["on_cpus_alone"](x, w, 2.0)), x
    )
    agree(functions["product"](x, w, 2.0), 2 * wide(x) * wide(w))
    return said


@check("exported for CPUs and GPUs at once")
def _(env: Env) -> None:
    functions = opened(env)
    import jax
    from jax import export

    x = floats(60, 500)
    calls = jax.jit(lambda x: functions["column_sums"](x) + functions["product"](x[0], x[1], 2.0))
    names = [export.DisabledSafetyCheck.custom_call(each) for each in _targets(functions)]
    made = export.export(calls, platforms=("cpu", "cuda"), disabled_checks=names)(x)
    agree(jax.jit(made.call)(x), wide(x).sum(0) + 2 * wide(x[0]) * wide(x[1]))


def _targets(functions: Any) -> list[str]:
    return [functions[name].target for name in ("column_sums", "product")]


def median(run: Callable[[], Any], rounds: int = 200) -> float:
    """Microseconds of a call that waits for its result."""
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        run().block_until_ready()
        times.append(time.perf_counter() - begin)
    return statistics.median(times) * 1e6


def each_of(run: Callable[[], Any], calls: int = 1000) -> float:
    """Microseconds of one of many calls behind each other, of which the last is waited for."""
    run().block_until_ready()
    begin = time.perf_counter()
    for _ in range(calls):
        last = run()
    last.block_until_ready()
    return (time.perf_counter() - begin) / calls * 1e6


@check("time of a call beside that of JAX's own")
def _(env: Env) -> str:
    product = opened(env)["product"]
    import jax

    words = []
    for size in (64, 1 << 20, 1 << 26):
        x, w = floats(size), floats(size, seed=1)
        ours, own = jax.jit(lambda x, w: product(x, w, 2.0)), jax.jit(lambda x, w: 2.0 * x * w)
        agree(ours(x, w), wide(own(x, w)))
        calls = 1000 if env.device == "cuda" and size < 1 << 26 else 20
        for how, time_of in (("waited for", median), ("queued", each_of)):
            found = [time_of(lambda run=run, x=x, w=w: run(x, w), calls) for run in (ours, own, ours, own)]
            words.append(f"{size} {how}: {min(found[::2]):.1f} beside {min(found[1::2]):.1f} us")
    return "; ".join(words)


@check("time of one of a hundred calls in a function beside JAX's own")
def _(env: Env) -> str:
    product = opened(env)["product"]
    import jax

    x, w = floats(4096), floats(4096, seed=1)

    def chain(f: Callable[..., Any]) -> Any:
        def run(x: Any, w: Any) -> Any:
            for _ in range(100):
                x = jax.lax.optimization_barrier(f(x, w))
            return x

        return jax.jit(run)

    ours, own = chain(lambda x, w: product(x, w, 0.5)), chain(lambda x, w: 0.5 * x * w)
    found = [median(lambda run=run: run(x, w), 100) / 100 for run in (ours, own, ours, own)]
    return f"{min(found[::2]):.2f} beside {min(found[1::2]):.2f} us"
