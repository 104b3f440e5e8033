"""Reads of tiles that nothing was written to, and kernels of which nothing is left."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from language_build import build

import tilec
import tilec.language as T
from tilec.language.frontend.elaborate import elaborate, load_entry
from tilec.manifest import load_manifest

ROOT = Path(__file__).parents[3]


def factory(body, **options):
    """A kernel whose only block runs ``body(x, s, f, Y)``."""

    @tilec.jit(**options)
    def k():
        @T.prim_func
        def main(X: T.Tensor((64,), "float32"), Y: T.Tensor((64,), "float32")):
            with T.Kernel(1, threads=64) as _:
                s = T.alloc_shared((64,), "float32")
                f = T.alloc_fragment((64,), "float32")
                t = T.alloc_fragment((1,), "float32")
                body(X, Y, s, f, t)

        return main

    return k


@T.macro
def reads_shared(X, Y, s, f, t):
    T.copy(s, Y)


@T.macro
def adds_to_nothing(X, Y, s, f, t):
    for i in T.Parallel(64):
        f[i] = f[i] + X[i]
    T.copy(f, Y)


@T.macro
def goes_on_from_nothing(X, Y, s, f, t):
    T.copy(X, f)
    T.reduce_sum(f, t, dim=0, clear=False)
    T.fill(Y, t[0])


@T.macro
def writes_first(X, Y, s, f, t):
    T.copy(X, s)
    T.copy(s, Y)


@T.macro
def carries_over_trips(X, Y, s, f, t):
    for k in T.serial(4):
        if k > 0:
            T.copy(s, Y)
        T.copy(X, s)


@T.macro
def adds_products_to_nothing(X, Y, s, f, t):
    a, sums = T.alloc_shared((16, 16), "float16"), T.alloc_fragment((16, 16), "float32")
    T.fill(a, 1)
    for _ in T.serial(4):
        T.gemm(a, a, sums)
    Y[0] = sums[0, 0]


@T.macro
def adds_in_a_loop_to_nothing(X, Y, s, f, t):
    for k in T.Pipelined(4, num_stages=2):
        for i in T.Parallel(64):
            f[i] += X[i] * k
    T.copy(f, Y)


@T.macro
def starts_anew_in_the_first_trip(X, Y, s, f, t):
    a, sums = T.alloc_shared((16, 16), "float16"), T.alloc_fragment((16, 16), "float32")
    T.fill(a, 1)
    for k in T.serial(4):
        T.gemm(a, a, sums, clear_accum=k == 0)
        for i in T.Parallel(64):
            f[i] = T.if_then_else(k > 0, f[i] + X[i], X[i])
    Y[0] = sums[0, 0] + f[0]


@T.macro
def clears_in_the_first_trip(X, Y, s, f, t):
    for k in T.serial(4):
        if k == 0:
            T.clear(f)
        if k > 2:
            for i in T.Parallel(64):
                s[i] += X[i]
        for i in T.Parallel(64):
            f[i] += X[i]
        T.copy(f, s)
    T.copy(s, Y)


@T.macro
def keeps_its_results(X, Y, s, f, t):
    T.copy(X, s)
    T.copy(s, f)


@T.macro
def leaves_scratch(X, Y, s, f, t):
    scratch = T.alloc_global((64,), "float32")
    T.copy(X, scratch)


@T.macro
def prints(X, Y, s, f, t):
    T.print(X[0])


SOURCE = "__device__ void ramp(float* to, int n) { for (int i = 0; i < n; ++i) to[i] = i; }"


@T.macro
def foreign_code_writes(X, Y, s, f, t):
    T.import_source(SOURCE)
    own, other = T.alloc_local((8,), "float32"), T.alloc_local((8,), "float32")
    T.call_extern("handle", "ramp", T.access_ptr(own, "w"), 8)
    T.call_extern("handle", "ramp", T.address_of(other[1]), 7)
    for i in T.Parallel(64):
        Y[i] = own[i % 8] + other[i % 8]


@T.macro
def foreign_code_reads(X, Y, s, f, t):
    T.import_source("__device__ float first(const float* of) { return of[0]; }")
    own = T.alloc_local((8,), "float32")
    Y[0] = T.call_extern("float32", "first", T.access_ptr(own, "r"))


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (reads_shared, "s"),
        (adds_to_nothing, "f"),
        (goes_on_from_nothing, "t"),
        (foreign_code_reads, "own"),
        (adds_products_to_nothing, "sums"),
        (adds_in_a_loop_to_nothing, "f"),
    ],
)
def test_a_read_before_any_write_warns(body, name):
    with pytest.warns(UserWarning, match=f"{name} is read before anything is written to it") as caught:
        build(factory(body), {})
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    "body",
    [
        writes_first,
        carries_over_trips,
        foreign_code_writes,
        starts_anew_in_the_first_trip,
        clears_in_the_first_trip,
    ],
)
def test_written_tiles_do_not(body):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        build(factory(body), {})


@pytest.mark.parametrize("body", [keeps_its_results, leaves_scratch])
def test_a_kernel_that_writes_nothing_warns(body):
    with pytest.warns(UserWarning, match="main writes nothing|k writes nothing") as caught:
        build(factory(body), {})
    assert caught[0].filename == __file__
    assert "with T.Kernel(1" in Path(__file__).read_text().splitlines()[caught[0].lineno - 1]


def test_a_line_for_people_is_a_result():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        build(factory(prints), {})


def test_of_several_launches_the_idle_one_warns():
    @tilec.jit
    def k():
        @T.prim_func
        def main(X: T.Tensor((64,), "float32"), Y: T.Tensor((64,), "float32")):
            with T.Kernel(1, threads=64) as _:
                T.copy(X, Y)
            with T.Kernel(2, threads=64) as _:
                f = T.alloc_fragment((64,), "float32")
                T.copy(X, f)

        return main

    with pytest.warns(UserWarning, match="writes nothing that outlives it") as caught:
        build(k, {})
    assert "T.Kernel(2" in Path(__file__).read_text().splitlines()[caught[0].lineno - 1]


def test_a_pass_config_turns_it_off():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        build(factory(reads_shared, pass_configs={"tl.disable_buffer_init_check": True}), {})


def test_no_shipped_kernel_warns():
    plan = load_manifest(ROOT / "manifests" / "llm.toml")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        for kernel in plan.kernels:
            variant = kernel.variants[0]
            elaborate(
                load_entry(variant.source, variant.base),
                name=kernel.name,
                dims=variant.dims,
                args=variant.args,
                config=variant.config,
            )


@T.macro
def copies(X, Y, s, f, t):
    T.copy(X, Y)


@pytest.mark.parametrize(("out_idx", "warns"), [(0, True), ([0, 1], True), (1, False), (None, False)])
def test_a_tensor_that_is_returned_and_never_written_warns(out_idx, warns):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        build(factory(copies, out_idx=out_idx))
    told = ["k returns X, which it writes nothing to: its contents are undefined"]
    assert [str(each.message).partition(";")[0] for each in caught] == (told if warns else [])


def added_up(clears):
    @T.prim_func
    def main(X: T.Tensor((64,), "float32"), Y: T.Tensor((4,), "float32"), Z: T.Tensor((64,), "float32")):
        if clears:
            with T.Kernel(1, threads=64) as _:
                T.clear(Y)
        with T.Kernel(4, threads=64) as block:
            for i in T.Parallel(16):
                T.atomic_add(Y[block], X[block * 16 + i])
        with T.Kernel(1, threads=64) as _:
            for i in T.Parallel(64):
                Z[i] = X[i] * 2.0
                Z[i] += Y[i // 16]

    return main


@pytest.mark.parametrize(
    ("clears", "out_idx", "warns"),
    [(False, [1, 2], True), (True, [1, 2], False), (False, [2], False), (False, None, False)],
)
def test_a_tensor_that_is_returned_and_read_before_it_is_written_warns(clears, out_idx, warns):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        build(tilec.jit(out_idx=out_idx)(added_up), {}, clears=clears)
    told = ["Y is made by the call, and read before anything is written to it: its contents are undefined"]
    assert [str(each.message).partition(";")[0] for each in caught] == (told if warns else [])
