"""Products of 8- and 4-bit floats with scales for neighbours along K: mxfp8, mxfp4, nvfp4."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from agree import agree, elaborated

import tilec.language as T
from tilec.backends.base import backend_of, limits_of
from tilec.backends.cuda.nodes import ScaledWarpGemm
from tilec.backends.pipeline import lower
from tilec.emulate.group import Group
from tilec.emulate.instructions import mma
from tilec.emulate.state.clocks import Hazard
from tilec.errors import UnsupportedError
from tilec.ir.nodes import walk
from tilec.ir.text.parser import parse_kernel
from tilec.ir.text.printer import format_kernel
from tilec.targets import native_target, parse_target

E4M3, E5M2, E2M1, E8M0 = "float8_e4m3fn", "float8_e5m2", "float4_e2m1fn", "float8_e8m0fnu"
#: Numbers, scales, and how many neighbours share one.
MXFP8, MXFP4, NVFP4 = (E4M3, E8M0, 32), (E2M1, E8M0, 32), (E2M1, E4M3, 16)
M, N, K = 40, 24, 256


def product(form, turned=(False, True), other=None, tiles=(32, 16, 64), threads=64):
    """C = A B in numbers of ``form``, those of B ``other`` where given; ``turned``: A and B stored the other
    way round."""
    (kind, scales, size), (ta, tb), (bm, bn, bk) = form, turned, tiles
    other = other or kind

    def shape(rows, columns, turn):
        return (columns, rows) if turn else (rows, columns)

    @T.prim_func
    def main(
        A: T.Tensor(shape(M, K, ta), kind),
        B: T.Tensor(shape(K, N, tb), other),
        SFA: T.Tensor((M, K // size), scales),
        SFB: T.Tensor((N, K // size), scales),
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(T.ceildiv(N, bn), T.ceildiv(M, bm), threads=threads) as (bx, by):
            a, b = T.alloc_shared(shape(bm, bk, ta), kind), T.alloc_shared(shape(bk, bn, tb), other)
            sfa, sfb = T.alloc_shared((bm, bk // size), scales), T.alloc_shared((bn, bk // size), scales)
            c = T.alloc_fragment((bm, bn), "float32")
            T.clear(c)
            for ko in T.Pipelined(K // bk, num_stages=2):
                if ta:
                    T.copy(A[ko * bk, by * bm], a)
                else:
                    T.copy(A[by * bm, ko * bk], a)
                if tb:
                    T.copy(B[bx * bn, ko * bk], b)
                else:
                    T.copy(B[ko * bk, bx * bn], b)
                T.copy(SFA[by * bm, ko * bk // size], sfa)
                T.copy(SFB[bx * bn, ko * bk // size], sfb)
                T.gemm_blockscaled(a, b, c, sfa, sfb, transpose_A=ta, transpose_B=tb, sf_size=size)
            T.copy(c, C[by * bm, bx * bn])

    return main


def numbers(rng, rows, columns, kind, turned):
    """A matrix as it is passed, and what it is."""
    shape = (columns, rows) if turned else (rows, columns)
    if kind == E2M1:
        held = rng.integers(0, 256, (shape[0], shape[1] // 2)).astype(np.uint8)
        codes = np.stack([held & 15, held >> 4], axis=-1).reshape(shape)
        values = codes.view(ml_dtypes.float4_e2m1fn).astype(np.float64)
    else:
        held = rng.normal(size=shape).astype(getattr(ml_dtypes, kind))
        values = held.astype(np.float64)
    return held, values.T if turned else values


def powers(rng, rows, kind, size):
    """Scales as they are passed, and one for each number."""
    if kind == E8M0:
        held = rng.integers(122, 133, (rows, K // size)).astype(np.uint8)
        values = 2.0 ** (held.astype(np.float64) - 127)
    else:
        held = rng.uniform(0.1, 4, (rows, K // size)).astype(ml_dtypes.float8_e4m3fn)
        values = held.astype(np.float64)
    return held, np.repeat(values, size, axis=1)


def operands(form, turned=(False, True), other=None, seed=0):
    """The inputs, and the product in NumPy."""
    rng, (kind, scales, size) = np.random.default_rng(seed), form
    a, left = numbers(rng, M, K, kind, turned[0])
    b, right = numbers(rng, K, N, other or kind, turned[1])
    (sfa, rows), (sfb, columns) = powers(rng, M, scales, size), powers(rng, N, scales, size)
    return (a, b, sfa, sfb), ((left * rows) @ (right * columns.T)).astype(np.float32)


@pytest.mark.parametrize(
    ("form", "targets"),
    [(MXFP8, ("cpu", "sm_120a")), (MXFP4, ("sm_120f",)), (NVFP4, ("sm_90a", "sm_121a"))],
)
def test_the_forms(form, targets):
    inputs, wanted = operands(form)
    agree(product(form), *inputs, expected=wanted, targets=targets)


@pytest.mark.emulate
@pytest.mark.parametrize("form", [MXFP8, MXFP4, NVFP4])
@pytest.mark.parametrize("target", ["cpu", "sm_80", "sm_90a", "sm_100a", "gfx942", "gfx1100", "sm_120a"])
def test_every_form_on_every_kind_of_target(form, target):
    inputs, wanted = operands(form)
    agree(product(form, threads=128), *inputs, expected=wanted, targets=(target,))


@pytest.mark.parametrize(
    ("form", "turned", "other", "target"),
    [
        ((E5M2, E8M0, 32), (True, False), E4M3, "sm_120a"),
        ((E4M3, E4M3, 16), (False, False), E2M1, "sm_80"),
        ((E5M2, E8M0, 32), (False, True), E2M1, "sm_120a"),
        pytest.param(MXFP4, (True, False), None, "sm_120a", marks=pytest.mark.emulate),
        pytest.param(MXFP8, (False, True), E2M1, "cpu", marks=pytest.mark.emulate),
    ],
)
def test_operands_stored_the_other_way_round_and_other_types(form, turned, other, target):
    inputs, wanted = operands(form, turned, other)
    agree(product(form, turned, other), *inputs, expected=wanted, targets=(target,))


@pytest.mark.parametrize(
    ("form", "other", "says"),
    [
        (MXFP8, None, "matrix cores mfma_scale_f32_16x16x128_f8f6f4, a scale of each 32"),
        (MXFP4, None, "matrix cores mfma_scale_f32_16x16x128_f8f6f4, a scale of each 32"),
        ((E5M2, E8M0, 32), E2M1, "matrix cores mfma_scale_f32_16x16x128_f8f6f4, a scale of each 32"),
    ],
)
def test_waves_multiply_with_scales(form, other, says):
    kernel = product(form, other=other, tiles=(32, 16, 128))
    is_scaled, roads = lowered(kernel, parse_target("gfx950"))
    assert is_scaled
    assert says in roads
    inputs, wanted = operands(form, other=other)
    agree(kernel, *inputs, expected=wanted, targets=("gfx950",))


@pytest.mark.parametrize(
    ("form", "turned", "threads", "says"),
    [
        (NVFP4, (False, True), 64, "not float8_e4m3fn for each 16"),
        (MXFP8, (False, True), 96, "96 threads are no whole waves of 64"),
        (
            MXFP4,
            (False, False),
            64,
            "float8_e4m3fn tiles of 4-bit numbers: no matrix instruction with scales",
        ),
    ],
)
def test_what_waves_do_not_multiply_with_scales(form, turned, threads, says):
    kernel = product(form, turned, tiles=(32, 16, 128), threads=threads)
    is_scaled, roads = lowered(kernel, parse_target("gfx950"))
    assert says in roads
    assert is_scaled == (turned == (False, False))


def lowered(kernel, target):
    made = lower(elaborated(kernel, (), {}, {}, {}), target)
    roads = " | ".join(map(str, made.launches[0].roads))
    return any(isinstance(stmt, ScaledWarpGemm) for stmt in walk(made.launches[0].body)), roads


@pytest.mark.parametrize(
    ("form", "turned", "target", "says"),
    [
        (MXFP8, (False, True), "sm_120a", "mma.sync m16n8k32 mxf8f6f4"),
        (MXFP4, (False, True), "sm_121f", "mma.sync m16n8k64 mxf4,"),
        (NVFP4, (False, True), "sm_120a", "mma.sync m16n8k64 mxf4nvf4"),
        (NVFP4, (False, True), "sm_120", "tiles of numbers times scales: sm_120 has no mma.sync"),
        (NVFP4, (False, False), "sm_120a", "it takes float4_e2m1fn stored along K alone"),
        ((E2M1, E8M0, 16), (False, True), "sm_120a", "none of float4_e2m1fn and float4_e2m1fn with"),
    ],
)
def test_what_instruction_it_is_and_why_not(form, turned, target, says):
    is_scaled, roads = lowered(product(form, turned), parse_target(target))
    assert says in roads
    assert is_scaled == ("mma.sync m" in says)


def test_4_bit_operands_beside_8_bit_ones_are_widened():
    is_scaled, roads = lowered(product(MXFP8, other=E2M1), parse_target("sm_120a"))
    assert is_scaled
    assert "float8_e4m3fn tiles of 4-bit numbers: no mma.sync with scales: there is none of" in roads
    assert "mma.sync m16n8k32 mxf8f6f4" in roads


def test_launches_get_roles():
    made = product(NVFP4, threads=128)
    is_scaled, roads = lowered(made, parse_target("sm_120a"))
    assert is_scaled
    assert "warp roles: a loading warp, computing warpgroups 1, rings of" in roads
    assert "A -> a: TMA" in roads
    inputs, wanted = operands(NVFP4)
    agree(made, *inputs, expected=wanted, targets=("sm_120a",))


def test_cpus_write_the_numbers_out():
    is_scaled, roads = lowered(product(NVFP4), native_target())
    assert not is_scaled
    assert "multiplies float32 tiles of numbers times scales" in roads


@pytest.mark.parametrize("form", [MXFP8, MXFP4, NVFP4])
def test_the_compiler_takes_the_instruction(form):
    target = parse_target("sm_120a")
    family = backend_of(target)
    made = lower(elaborated(product(form), (), {}, {}, {}), target)
    image = family.generator().compile_kernel(family.lower_kernel(made, target), target, "scaled")
    assert image.launches[0].products == ("mma.sync",)


def test_scales_that_no_word_holds_together():
    """Three in a row, from the second column of a tile on; sums in shared memory."""

    @T.prim_func
    def main(
        A: T.Tensor((16, 128), E4M3),
        SFA: T.Tensor((16, 4), E8M0),
        C: T.Tensor((16, 16), "float32"),
    ):
        with T.Kernel(1, threads=32):
            a, s = T.alloc_shared((16, 128), E4M3), T.alloc_shared((16, 4), E8M0)
            c = T.alloc_shared((16, 16), "float32")
            T.copy(A, a)
            T.copy(SFA, s)
            T.clear(c)
            T.gemm_blockscaled(a[:, 32:128], a[:, 32:128], c, s[:, 1:4], s[:, 1:4], transpose_B=True)
            T.copy(c, C)

    rng = np.random.default_rng(1)
    a = rng.normal(size=(16, 128)).astype(ml_dtypes.float8_e4m3fn)
    s = rng.integers(120, 134, (16, 4)).astype(np.uint8)
    whole = (a.astype(np.float64) * np.repeat(2.0 ** (s - 127.0), 32, axis=1))[:, 32:]
    agree(main, a, s, expected=(whole @ whole.T).astype(np.float32), targets=("sm_120a",))


def test_fragments_and_sums_that_begin_anew():
    @T.prim_func
    def main(
        A: T.Tensor((32, 128), E2M1),
        SFA: T.Tensor((32, 8), E4M3),
        C: T.Tensor((32, 32), "float32"),
        D: T.Tensor((32,), "float32"),
    ):
        with T.Kernel(1, threads=64):
            a, s = T.alloc_shared((32, 64), E2M1), T.alloc_shared((32, 4), E4M3)
            held, scales = T.alloc_fragment((32, 64), E2M1), T.alloc_fragment((32, 4), E4M3)
            c, most = T.alloc_fragment((32, 32), "float32"), T.alloc_fragment((32,), "float32")
            for ko in T.Pipelined(2, num_stages=2):
                T.copy(A[0, ko * 64], a)
                T.copy(SFA[0, ko * 4], s)
                T.copy(a, held)
                T.copy(s, scales)
                T.gemm_blockscaled(held, a, c, scales, s, transpose_B=True, sf_size=16, clear_accum=(ko == 0))
            T.reduce_max(c, most, dim=1)
            T.copy(c, C)
            T.copy(most, D)

    rng = np.random.default_rng(2)
    a = rng.integers(0, 256, (32, 64)).astype(np.uint8)
    s = rng.uniform(0.1, 4, (32, 8)).astype(ml_dtypes.float8_e4m3fn)
    codes = np.stack([a & 15, a >> 4], axis=-1).reshape(32, 128).view(ml_dtypes.float4_e2m1fn)
    whole = codes.astype(np.float64) * np.repeat(s.astype(np.float64), 16, axis=1)
    wanted = (whole @ whole.T).astype(np.float32)
    agree(main, a, s, expected=[wanted, wanted.max(axis=1)], targets=("sm_120a",))


def test_4_bit_products_have_rates():
    rates = {name: limits_of(parse_target(name)).peak(E2M1) for name in ("sm_120a", "sm_80")}
    assert rates["sm_120a"] == 2 * limits_of(parse_target("sm_120a")).peak(E4M3)
    assert rates["sm_80"] == limits_of(parse_target("sm_80")).peak("bfloat16")


def test_its_text_parses_back():
    text = format_kernel(elaborated(product(NVFP4), (), {}, {}, {}))
    assert "gemm_blockscaled(" in text
    assert "group=16" in text
    assert format_kernel(parse_kernel(text)) == text


@pytest.mark.parametrize(
    ("form", "error", "says"),
    [
        ((E4M3, E8M0, 64), UnsupportedError, "sf_size=64"),
        ((E4M3, E5M2, 32), ValueError, "sfa is float8_e5m2"),
        (("float16", E8M0, 32), ValueError, "a is float16"),
    ],
)
def test_what_is_refused_by_name(form, error, says):
    with pytest.raises(error, match=says):
        elaborated(product(form), (), {}, {}, {})


def test_scales_that_do_not_fit_are_named():
    @T.prim_func
    def main(C: T.Tensor((32, 32), "float32")):
        with T.Kernel(1, threads=64):
            a, s = T.alloc_shared((32, 64), E4M3), T.alloc_shared((32, 4), E8M0)
            c = T.alloc_fragment((32, 32), "float32")
            T.gemm_blockscaled(a, a, c, s, s, transpose_B=True, clear_accum=True)
            T.copy(c, C)

    with pytest.raises(AssertionError, match="s has 32 rows of 4 scales"):
        elaborated(main, (), {}, {}, {})


# ---- the instruction ----


def test_lanes_that_hold_scales():
    """PTX ISA, "Block Scaling for mma.sync": of each four lanes two hold rows g and g + 8 of A, one column g
    of B, from the byte that the selector names."""
    words = np.arange(32, dtype=np.uint32) * np.uint32(0x01010101) + np.uint32(0x03020100)
    group = Group.__new__(Group)
    group.count = 32
    rows = 4 * (np.arange(16) % 8) + np.arange(16) // 8
    found = mma._scales(group, words, rows, 2, 1, "ue8m0", 4)[0]
    assert np.log2(found[9, 0]) == 4 * 1 + 1 + 2 - 127
    assert (found == found[:, :1]).all()
    found = mma._scales(group, words, 4 * np.arange(8) + 3, 0, 4, "ue8m0", 8)[0]
    assert (np.log2(found[5]) + 127).tolist() == [23, 23, 24, 24, 25, 25, 26, 26]
    with pytest.raises(Hazard, match="selector 1 is none of 0, 2"):
        mma._selector(1, (0, 2))
