"""Products by MFMA and WMMA: right on the emulator, whose lanes have rows and columns where AMD publishes
them, and in the disassembly what was meant, without scratch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest
from breadth import diagonal, parametrized

import tilec
import tilec.language as T
from tilec.backends.base import backend_of
from tilec.backends.hip.chips import CHIPS as HIP
from tilec.backends.hip.codegen import images
from tilec.backends.hip.products.instructions import FORMS, matrices
from tilec.backends.hip.products.scaled import multiply_scaled
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.emulate import EmulatedKernel
from tilec.ir.guards import Guard
from tilec.ir.interp.values import numpy_dtype
from tilec.ir.nodes import Kernel
from tilec.ir.text.parser import parse_kernel
from tilec.ir.text.printer import format_kernel
from tilec.language.frontend.elaborate import elaborate, load_entry
from tilec.targets import parse_target

KERNELS = Path(__file__).parents[4] / "examples" / "kernels"
SIZES = {"M": 37, "N": 40, "K": 72}
#: A chip of each form, and the one whose bytes have an instruction of their own.
CHIPS = ("gfx90a", "gfx942", "gfx1100", "gfx1201")
#: Instructions of a trip, reads and writes of LDS, by the chip: a tile of 64 by 64, 32 deep, by 128 threads.
COUNTS = {
    "gfx942": {"v_mfma_f32_16x16x16": 16, "ds_read": 10, "scratch_(load|store)": 0},
    "gfx950": {"v_mfma_f32_16x16x32_f16": 8, "ds_read_b128": 10, "scratch_(load|store)": 0},
    "gfx1100": {"v_wmma_f32_16x16x16_f16": 8, "ds_load": 20, "scratch_(load|store)": 0},
    "gfx1201": {"v_wmma_f32_16x16x16_f16": 8, "ds_load": 12, "scratch_(load|store)": 0},
}
#: As `COUNTS`, of float8_e4m3fn 64 deep.
SMALL_COUNTS = {
    "gfx942": {"v_mfma_f32_16x16x32_fp8_fp8": 16, "ds_read": 10, "scratch_(load|store)": 0},
    "gfx950": {"v_mfma_f32_16x16x32_fp8_fp8": 16, "ds_read": 16, "scratch_(load|store)": 0},
    "gfx1201": {"v_wmma_f32_16x16x16_fp8_fp8": 16, "ds_load": 12, "scratch_(load|store)": 0},
}
#: As `COUNTS`, of float4_e2m1fn with scales 128 deep, with copies and the way of results out.
SCALED_COUNTS = {
    "v_mfma_scale_f32_16x16x128_f8f6f4": 8, "ds_read_b128": 6 + 4, "ds_read_u8": 6, "global_load_lds": 12,
    "scratch_(load|store)": 0,
}  # fmt: skip
#: 8-bit floats by chips that multiply them, and a depth: in other bits, as float16, and as they are.
SMALL = (
    ("gfx942", "float8_e4m3fn", 64),
    ("gfx942", "float8_e5m2", 64),
    ("gfx950", "float8_e4m3fn", 64),
    ("gfx950", "float8_e5m2", 128),
    ("gfx1201", "float8_e4m3fn", 64),
)
#: Types that some chips have deeper instructions for, or alone: operands, sums, the depth of a tile, whether
#: B lies along K, and the instruction.
FURTHER = (
    ("gfx950", "float16", "float32", 64, True, "v_mfma_f32_16x16x32_f16"),
    ("gfx950", "bfloat16", "float32", 64, False, "v_mfma_f32_16x16x32_bf16"),
    ("gfx950", "bfloat16", "float32", 16, True, "v_mfma_f32_16x16x16_bf16"),
    ("gfx950", "int8", "int32", 64, True, "v_mfma_i32_16x16x64_i8"),
    ("gfx950", "int8", "int32", 32, True, "v_mfma_i32_16x16x32_i8"),
    ("gfx950", "float8_e4m3fn", "float32", 128, True, "v_mfma_f32_16x16x128_f8f6f4"),
    ("gfx90a", "float64", "float64", 32, True, "v_mfma_f64_16x16x4f64"),
    ("gfx942", "float64", "float64", 16, False, "v_mfma_f64_16x16x4_f64"),
)
#: Of attention with heads of 128 elements, 64 queries and 64 keys of a trip: the scores', then the outputs'.
ATTENTION = {
    "gfx942": ("v_mfma_f32_16x16x16", 2 * 4 * 8 + 2 * 8 * 4),
    "gfx950": ("v_mfma_f32_16x16x32_f16", 2 * 4 * 4 + 2 * 8 * 2),
    "gfx1100": ("v_wmma_f32_16x16x16_f16", 4 * 8 + 8 * 4),
}


@tilec.jit(out_idx=[-1])
def in_turn(M, N, K):
    """A product whose loop asks for nothing."""

    @T.prim_func
    def main(A: T.Tensor((M, K), "float16"), B: T.Tensor((N, K), "float16"), C: T.Tensor((M, N), "float16")):
        with T.Kernel(T.ceildiv(N, 64), T.ceildiv(M, 64), threads=128) as (bx, by):
            As = T.alloc_shared((64, 32), "float16")
            Bs = T.alloc_shared((64, 32), "float16")
            acc = T.alloc_fragment((64, 64), "float32")
            T.clear(acc)
            for ko in T.serial(T.ceildiv(K, 32)):
                T.copy(A[by * 64, ko * 32], As)
                T.copy(B[bx * 64, ko * 32], Bs)
                T.gemm(As, Bs, acc, transpose_B=True)
            T.copy(acc, C[by * 64, bx * 64])

    return main


def product(dtype: str, trans_b: bool = True, entry: str = "gemm.py:matmul", num_stages: int = 2) -> Kernel:
    dims = {"M": Guard(), "N": Guard(div=8), "K": Guard(div=8)}
    config = {"bM": 64, "bN": 64, "bK": 32, "num_stages": num_stages, "threads": 128}
    args = {"dtype": dtype} | ({"trans_B": trans_b} if dtype != "int8" else {})
    return elaborate(load_entry(entry, KERNELS), name="product", dims=dims, args=args, config=config)


def ran(kernel: Kernel, chip: str, arrays: list[np.ndarray], dims: Mapping[str, int]) -> np.ndarray:
    EmulatedKernel(kernel, parse_target(chip))(arrays, dims)
    return arrays[-1].astype(np.float32)


@parametrized(
    ("trans_b", "chip"),
    [(trans_b, chip) for trans_b in (False, True) for chip in CHIPS],
    fast=diagonal((False, True), CHIPS),
)
def test_float16(chip: str, trans_b: bool) -> None:
    rng = np.random.default_rng(7)
    a = rng.standard_normal((SIZES["M"], SIZES["K"])).astype(np.float16)
    b = rng.standard_normal((SIZES["K"], SIZES["N"])).astype(np.float16)
    wanted = a.astype(np.float32) @ b.astype(np.float32)
    stored = np.ascontiguousarray(b.T) if trans_b else b
    c = np.zeros(wanted.shape, np.float16)
    found = ran(product("float16", trans_b), chip, [a, stored, c], SIZES)
    np.testing.assert_allclose(found, wanted, rtol=2e-3, atol=2e-2)


@pytest.mark.parametrize("chip", ["gfx90a", "gfx942"])
def test_float32_is_multiplied_as_it_is(chip: str) -> None:
    rng = np.random.default_rng(8)
    a = rng.standard_normal((SIZES["M"], SIZES["K"]), dtype=np.float32)
    b = rng.standard_normal((SIZES["N"], SIZES["K"]), dtype=np.float32)
    wanted = a.astype(np.float64) @ b.T
    c = np.zeros(wanted.shape, np.float32)
    assert np.allclose(ran(product("float32"), chip, [a, b, c], SIZES), wanted, rtol=1e-5, atol=1e-5)


@tilec.jit
def two_sums(M, N, K, dtype, total="float32", bK=64, trans_b=True):
    """Products added to what C has, and those of the last trip alone in D."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor((N, K) if trans_b else (K, N), dtype),
        C: T.Tensor((M, N), total),
        D: T.Tensor((M, N), total),
    ):
        with T.Kernel(T.ceildiv(N, 32), T.ceildiv(M, 32), threads=64) as (bx, by):
            As, Bs = T.alloc_shared((32, bK), dtype), T.alloc_shared((32, bK) if trans_b else (bK, 32), dtype)
            acc, last = T.alloc_fragment((32, 32), total), T.alloc_fragment((32, 32), total)
            T.copy(C[by * 32, bx * 32], acc)
            for ko in T.serial(T.ceildiv(K, bK)):
                T.copy(A[by * 32, ko * bK], As)
                T.copy(B[bx * 32, ko * bK] if trans_b else B[ko * bK, bx * 32], Bs)
                T.gemm(As, Bs, acc, transpose_B=trans_b)
                T.gemm(As, Bs, last, transpose_B=trans_b, clear_accum=True)
            T.copy(acc, C[by * 32, bx * 32])
            T.copy(last, D[by * 32, bx * 32])

    return main


def small_operand(rows: int, dtype: str, rng: np.random.Generator) -> np.ndarray:
    """Numbers of all sizes, zeros of both signs; NaN in a row, in another an infinity where there is one."""
    kind = np.dtype(getattr(ml_dtypes, dtype))
    made = (rng.integers(-7, 8, (rows, 96)) * 2.0 ** rng.integers(-5, 3, (rows, 96))).astype(kind)
    made[:, 7] = -0.0
    made[5, 3] = np.nan
    made[6, 4] = ml_dtypes.finfo(kind).smallest_subnormal
    made[9, 90] = np.inf if dtype == "float8_e5m2" else -ml_dtypes.finfo(kind).max
    return made


@pytest.mark.parametrize(("chip", "dtype", "depth"), SMALL)
def test_8_bit_floats(chip: str, dtype: str, depth: int) -> None:
    rng = np.random.default_rng(9)
    a, b = small_operand(37, dtype, rng), small_operand(40, dtype, rng)
    c, d = rng.integers(-9, 9, (37, 40)).astype(np.float32), np.zeros((37, 40), np.float32)
    dims = {name: Guard() for name in "MN"} | {"K": Guard(div=16)}
    kernel = elaborate(two_sums, name="sums", dims=dims, args={"dtype": dtype, "bK": depth}, config={})
    with np.errstate(invalid="ignore"):
        wanted = [was + a[:, start:].astype(np.float64) @ b[:, start:].astype(np.float64).T
                  for was, start in ((c.copy(), 0), (0, 96 // depth * depth))]  # fmt: skip
        EmulatedKernel(kernel, parse_target(chip))([a, b, c, d], {"M": 37, "N": 40, "K": 96})
    for found, exact in zip((c, d), wanted, strict=True):
        np.testing.assert_allclose(found, exact, rtol=1e-6, atol=1e-4)


@parametrized(("chip", "dtype", "total", "depth", "trans_b", "instruction"), FURTHER, fast=FURTHER[::3])
def test_further_types(
    chip: str, dtype: str, total: str, depth: int, trans_b: bool, instruction: str
) -> None:
    rng, kind = np.random.default_rng(10), numpy_dtype(dtype)
    a, b = (rng.integers(-8, 9, shape).astype(kind) for shape in ((37, 72), (72, 40)))
    c, d = (np.zeros((37, 40), total) for _ in range(2))
    args = {"dtype": dtype, "total": total, "bK": depth, "trans_b": trans_b}
    dims = {"M": Guard(), "N": Guard(div=8), "K": Guard(div=8)}
    kernel, target = elaborate(two_sums, name="sums", dims=dims, args=args, config={}), parse_target(chip)
    stored = np.ascontiguousarray(b.T) if trans_b else b
    EmulatedKernel(kernel, target)([a, stored, c, d], {"M": 37, "N": 40, "K": 72})
    np.testing.assert_array_equal(c, a.astype(total) @ b.astype(total))
    lowered = backend_of(target).lower_kernel(lower(kernel, target), target)
    found = set(re.findall(r"\bv_mfma\w+", images.assembly(lowered, target, "k")))
    assert found == {instruction}


def test_places_of_elements_are_found_anew() -> None:
    rng, target = np.random.default_rng(11), parse_target("gfx1100")
    a, b = (rng.integers(-8, 9, shape).astype(np.float16) for shape in ((37, 77), (41, 77)))
    c, d = (np.zeros((37, 41), np.float32) for _ in range(2))
    dims = {name: Guard() for name in "MNK"}
    kernel = elaborate(two_sums, name="sums", dims=dims, args={"dtype": "float16", "bK": 128}, config={})
    assert "anew(warp=True)" in format_kernel(lower(kernel, target))
    EmulatedKernel(kernel, target)([a, b, c, d], {"M": 37, "N": 41, "K": 77})
    np.testing.assert_array_equal(c, a.astype(np.float32) @ b.astype(np.float32).T)


def test_copies_of_elements_leave_sums_their_registers() -> None:
    """8-bit floats that become float16, in rows of any length."""
    target, dims = parse_target("gfx1100"), {name: Guard() for name in "MNK"}
    entry, config = load_entry("fp8.py:linear_fp8_blocks", KERNELS), {"bM": 32, "bN": 64}
    kernel = elaborate(entry, name="blocks", dims=dims, args={}, config=config)
    (launch,) = images.compile_kernel(to_tir(lower(kernel, target), target), target, "k").launches
    assert launch.gpu.stack == launch.gpu.spills == 0


def disassembled(kernel: Kernel, chip: str, counts: dict[str, int]) -> None:
    """Holds the instructions of a kernel to ``counts``, and its registers to what there is."""
    target = parse_target(chip)
    lowered = backend_of(target).lower_kernel(lower(kernel, target), target)
    text = images.assembly(lowered, target, "k")
    assert {name: len(re.findall(rf"\b{name}", text)) for name in counts} == counts
    (launch,) = images.compile_kernel(lowered, target, "k").launches
    assert launch.products == ("matrix cores",)
    assert launch.gpu.stack == launch.gpu.spills == 0


@pytest.mark.parametrize("chip", COUNTS)
def test_instructions(chip: str) -> None:
    disassembled(product("float16"), chip, COUNTS[chip])


@pytest.mark.parametrize("chip", SMALL_COUNTS)
def test_instructions_of_8_bit_floats(chip: str) -> None:
    dims = {"M": Guard(div=64), "N": Guard(div=64), "K": Guard(div=64)}
    config = {"bM": 64, "bN": 64, "bK": 64, "threads": 128}
    entry = load_entry("fp8.py:linear_fp8", KERNELS)
    disassembled(elaborate(entry, name="small", dims=dims, args={}, config=config), chip, SMALL_COUNTS[chip])


def test_instructions_with_scales() -> None:
    """Of 64 by 64 by 128 by two waves, with a byte of scales in a lane for each 16 rows."""
    dims = {"M": Guard(), "N": Guard(div=8), "K": Guard(div=128)}
    entry = load_entry("blockscaled.py:matmul_blockscaled", KERNELS)
    args = {"dtype": "float4_e2m1fn"}
    kernel = elaborate(entry, name="scaled", dims=dims, args=args, config={"threads": 128})
    disassembled(kernel, "gfx950", SCALED_COUNTS)


@pytest.mark.parametrize(
    ("kind", "word", "bits", "block"),
    [("float8_e4m3fn", 4, 0x38, 2), ("float8_e4m3fn", 0, 0x38, 0), ("float4_e2m1fn", 3, 0x2, 1)],
)
def test_lanes_that_hold_numbers_and_scales(kind: str, word: int, bits: int, block: int) -> None:
    """A one in a word of lane 16, which has K from 16 and 80 on of 8 bits and from 32 on of 4 bits, among
    zeros: a row of ones makes the scale of its 32 of that, which is another lane's."""
    ones = int.from_bytes(bytes([bits if kind == "float8_e4m3fn" else 17 * bits] * 4), "little")
    a = np.zeros((64, 8), np.uint32)
    a[16, word] = bits
    sums = np.zeros((64, 4), np.float32)

    def load(pointer: np.ndarray, dtype: str, step: int) -> np.ndarray:
        return pointer[:, step]

    def store(pointer: np.ndarray, dtype: str, value: np.ndarray, step: int) -> None:
        pointer[:, step] = value

    lanes = SimpleNamespace(count=64, load=load, store=store)
    scales = np.uint32(127) + np.arange(64, dtype=np.uint32) // 16
    b = np.full((64, 8), ones, np.uint32)
    multiply_scaled(kind, kind).meaning(lanes, sums, a, b, scales, np.full(64, 127, np.uint32))
    wanted = np.zeros((64, 4), np.float32)
    wanted[::16] = 2.0**block
    np.testing.assert_array_equal(sums, wanted)


def attention(dtype: str, side: int, causal: bool = False) -> Kernel:
    """As `manifests/llm.toml` has it for heads of 128 elements."""
    dims = {name: Guard() for name in ("B", "Sq", "Sk", "H", "Hkv")} | {"D": Guard(eq=128)}
    dims |= {name: Guard(div=8) for name in ("q_batch", "q_row", "kv_batch", "kv_row")}
    config = {"bM": side, "bN": side, "width": 128}
    entry = load_entry("attention.py:attention", KERNELS)
    return elaborate(
        entry, name="attention", dims=dims, args={"dtype": dtype, "causal": causal}, config=config
    )


@parametrized("chip", ATTENTION, fast=["gfx942"])
def test_attention_has_its_registers(chip: str) -> None:
    """Neither addresses of elements nor operands of two steps push sums out."""
    target, (instruction, count) = parse_target(chip), ATTENTION[chip]
    lowered = to_tir(lower(attention("float16", 64, causal=True), target), target)
    assert len(re.findall(rf"\b{instruction}", images.assembly(lowered, target, "k"))) == count
    (launch,) = images.compile_kernel(lowered, target, "k").launches
    assert launch.gpu.stack == launch.gpu.spills == 0


def test_dot_products_are_not_unrolled_out_of_registers() -> None:
    """float32 has no matrix instruction there."""
    target = parse_target("gfx1100")
    lowered = to_tir(lower(attention("float32", 32), target), target)
    (launch,) = images.compile_kernel(lowered, target, "k").launches
    assert launch.gpu.stack == launch.gpu.spills == 0


def test_stages_take_no_shared_memory() -> None:
    chip = parse_target("gfx942")
    (one,), (four,) = (
        to_tir(lower(product("float16", num_stages=stages), chip), chip).launches for stages in (1, 4)
    )
    assert one.shared_bytes == four.shared_bytes == 2 * 64 * 32 * 2


def test_loads_that_do_not_run_ahead_stay_in_registers() -> None:
    chip = parse_target("gfx1100")
    dims = {"M": Guard(), "N": Guard(div=8), "K": Guard(div=8)}
    kernel = elaborate(in_turn, name="product", dims=dims, args={}, config={})
    lowered = backend_of(chip).lower_kernel(lower(kernel, chip), chip)
    assert images.compile_kernel(lowered, chip, "k").launches[0].gpu.stack == 0


def test_text_of_products() -> None:
    kernel = lower(product("float16"), parse_target("gfx942"), until="select_instructions")
    text = format_kernel(kernel)
    assert "wave_mma(" in text
    assert "wave_tile('mfma'" in text.replace('"', "'")
    assert format_kernel(parse_kernel(text)) == text


def test_parts_of_waves_multiply_by_dots() -> None:
    dims = {name: Guard(eq=64) for name in "MNK"}
    config = {"bM": 32, "bN": 32, "bK": 32, "threads": 32}
    kernel = elaborate(
        load_entry("gemm.py:matmul", KERNELS), name="p", dims=dims, args={"dtype": "float16"}, config=config
    )
    said = {}
    for chip in ("gfx942", "gfx1100"):
        target = parse_target(chip)
        (launch,) = backend_of(target).lower_kernel(lower(kernel, target), target).launches
        said[chip] = " ".join(map(str, launch.roads))
    assert "32 threads are no whole waves of 64" in said["gfx942"]
    assert "matrix cores" in said["gfx1100"]


def test_types_of_instructions() -> None:
    def has(chip: str, dtype: str, total: str = "float32") -> bool:
        return bool(matrices(parse_target(chip), (dtype, dtype, total)))

    chips = {dtype: {chip for chip in HIP if has(chip, dtype)} for dtype in ("float8_e4m3fn", "float8_e5m2")}
    assert all(has(chip, "bfloat16") and has(chip, "int8", "int32") for chip in HIP)
    assert chips["float8_e4m3fn"] == {"gfx942", "gfx950", "gfx1200", "gfx1201"}
    assert chips["float8_e5m2"] == chips["float8_e4m3fn"] - {"gfx942"}
    assert not has("gfx1100", "float32")
    assert not has("gfx1201", "float64", "float64")
    assert {form.lanes for form in FORMS.values()} == {32, 64}
