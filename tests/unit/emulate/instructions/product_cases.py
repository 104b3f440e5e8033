"""wgmma: types, sizes, swizzles, operands across, A in registers."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from case_kernels import SYNC_PROXIES, Case, asm, fill, packed, together
from register_cases import places

_A_BYTES, _B_BYTES, WARPS = 16384, 32768, 4
_WORDS = (_A_BYTES + _B_BYTES) // 4


def _descriptor(swizzle: int, leading: int, stride: int) -> int:
    return {0: 0, 128: 1, 64: 2, 32: 3}[swizzle] << 62 | (stride >> 4) << 32 | (leading >> 4) << 16


def wgmma(
    name: str,
    columns: int,
    types: str,
    kind: object,
    *,
    a: tuple[int, int, int] | None = (128, 16, 1024),
    b: tuple[int, int, int] = (128, 16, 1024),
    trans: tuple[int, int] = (0, 0),
    adds: int = 1,
    signs: tuple[int, int] = (1, 1),
    selector: int | None = None,
    floats: float | None = 1e-4,
) -> Case:
    """One product. ``a`` and ``b`` are swizzle, leading and stride byte offset; without ``a`` it is in
    registers. With a ``selector`` it is one of a sparse A, whose places each thread has a word of."""
    is_whole, is_half = types.startswith("s32"), types.startswith("f16")
    count, letter = columns // (4 if is_half else 2), "r" if is_whole or is_half else "f"
    size = np.dtype(kind).itemsize  # type: ignore[call-overload]
    tail = "" if is_whole else f", {signs[0]}, {signs[1]}"
    if size == 2:
        tail += f", {trans[1]}" if a is None else f", {trans[0]}, {trans[1]}"
    if a is None:
        left = "{" + ", ".join(f"%{count + at}" for at in range(4)) + "}"
        given = ", ".join(f'"r"(in[{_WORDS} + thread * 4 + {at}])' for at in range(4))
        at, setup = count + 4, ""
    else:
        left, given, at = f"%{count}", '"l"(a)', count + 1
        setup = f"unsigned long long a = (unsigned long long)((base >> 4) & 0x3fffu) + {_descriptor(*a)}ULL;"
    sums = "{" + ", ".join(f"%{number}" for number in range(count)) + "}"
    sparse = selector is not None
    opcode = f"wgmma.mma_async{'.sp' * sparse}.sync.aligned.m64n{columns}k{(1 + sparse) * 32 // size}.{types}"
    word = f'"r"(in[{_WORDS + 512} + thread]), ' if sparse else ""
    product = asm(
        f"{{ .reg .pred p; setp.ne.b32 p, %{at + 1 + sparse}, 0; {opcode} {sums}, {left}, %{at}, "
        f"{f'%{at + 1}, {selector}, ' if sparse else ''}p{tail}; }}",
        ", ".join(f'"+{letter}"(sums[{number}])' for number in range(count)),
        f'{given}, "l"(b), {word}"r"({adds})',
    )
    source = f"""unsigned base = (unsigned)__cvta_generic_to_shared(shared);
  {fill(128, _WORDS)}
  {SYNC_PROXIES}
  __syncthreads();
  {setup}
  unsigned start = (base + {_A_BYTES}u) >> 4;
  unsigned long long b = (unsigned long long)(start & 0x3fffu) + {_descriptor(*b)}ULL;
#pragma unroll
  for (int at = 0; at < {count}; ++at) sums[at] = {"0" if is_whole else "0x38003800u" if is_half else "0.5f"};
  {asm("wgmma.fence.sync.aligned;")}
  {product}
  {asm("wgmma.commit_group.sync.aligned;")}
  {asm("wgmma.wait_group.sync.aligned 0;")}
{_halves_back(count) if is_half else _words_back(count, is_whole)}"""
    operands = packed(_WORDS + 512, kind)  # type: ignore[arg-type]
    given_words = together(operands, *[places] * WARPS) if sparse else operands
    return Case(
        f"wgmma_{name}", source, given_words, columns // 2 * 128, threads=128,
        shared=_A_BYTES + _B_BYTES,
        sums=("int32" if is_whole else "uint32" if is_half else "float32", count),
        floats=None if is_whole else floats,
    )  # fmt: skip


def _words_back(count: int, is_whole: bool) -> str:
    """C that writes sums to the output."""
    return f"""#pragma unroll
  for (int at = 0; at < {count}; ++at)
    out[at * 128 + thread] = {"(unsigned)sums[at]" if is_whole else "__float_as_uint(sums[at])"};"""


def _halves_back(count: int) -> str:
    """C that writes sums of 16 bits, two a register, as float32."""
    low, high = (
        asm("cvt.f32.f16 %0, %1;", '"=f"(value)', f'"h"((unsigned short)((unsigned)sums[at] >> {bits}))')
        for bits in (0, 16)
    )
    return f"""#pragma unroll
  for (int at = 0; at < {count}; ++at) {{
    float value;
    {low}
    out[2 * at * 128 + thread] = __float_as_uint(value);
    {high}
    out[(2 * at + 1) * 128 + thread] = __float_as_uint(value);
  }}"""


def product_cases() -> list[Case]:
    """Products of one warpgroup."""
    half, bf16, e4m3 = np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn
    across = (128, 4096, 1024)
    return [
        wgmma("f16", 64, "f32.f16.f16", half),
        wgmma("f16_n256", 256, "f32.f16.f16", half),
        wgmma("f16_n8", 8, "f32.f16.f16", half),
        wgmma("f16_sets", 64, "f32.f16.f16", half, adds=0),
        wgmma("f16_subtracts", 64, "f32.f16.f16", half, signs=(-1, 1)),
        wgmma("f16_swizzle_64", 64, "f32.f16.f16", half, a=(64, 16, 512), b=(64, 16, 512)),
        wgmma("f16_swizzle_32", 64, "f32.f16.f16", half, a=(32, 16, 256), b=(32, 16, 256)),
        wgmma("f16_plain", 64, "f32.f16.f16", half, a=(0, 128, 256), b=(0, 1024, 128)),
        wgmma("f16_b_across", 128, "f32.f16.f16", half, b=across, trans=(0, 1)),
        wgmma("f16_a_across", 64, "f32.f16.f16", half, a=across, trans=(1, 0)),
        wgmma("f16_both_across", 192, "f32.f16.f16", half, a=across, b=across, trans=(1, 1)),
        wgmma("f16_b_across_64", 64, "f32.f16.f16", half, b=(64, 2048, 512), trans=(0, 1)),
        wgmma("f16_registers", 128, "f32.f16.f16", half, a=None),
        wgmma("f16_registers_across", 128, "f32.f16.f16", half, a=None, b=across, trans=(0, 1)),
        wgmma("f16_sums", 64, "f16.f16.f16", half, floats=2e-2),
        wgmma("f16_sums_registers", 128, "f16.f16.f16", half, a=None, floats=2e-2),
        wgmma("f16_sums_sets", 16, "f16.f16.f16", half, adds=0, floats=2e-2),
        wgmma("bf16", 128, "f32.bf16.bf16", bf16),
        wgmma("bf16_registers", 64, "f32.bf16.bf16", bf16, a=None),
        wgmma("tf32", 64, "f32.tf32.tf32", np.float32),
        wgmma("e4m3", 64, "f32.e4m3.e4m3", e4m3, floats=5e-3),
        wgmma("e5m2_e4m3", 64, "f32.e5m2.e4m3", ml_dtypes.float8_e5m2, floats=5e-3),
        wgmma("e4m3_registers", 64, "f32.e4m3.e4m3", e4m3, a=None, floats=5e-3),
        wgmma("s8", 64, "s32.s8.s8", np.int8),
        wgmma("sp_f16", 64, "f32.f16.f16", half, selector=0),
        wgmma("sp_f16_second", 64, "f32.f16.f16", half, selector=1),
        wgmma("sp_f16_n256", 256, "f32.f16.f16", half, selector=1),
        wgmma("sp_f16_n8", 8, "f32.f16.f16", half, selector=0),
        wgmma("sp_f16_sets", 64, "f32.f16.f16", half, selector=0, adds=0),
        wgmma("sp_f16_swizzles", 64, "f32.f16.f16", half, selector=1, a=(32, 16, 256), b=(64, 16, 512)),
        wgmma("sp_f16_plain", 64, "f32.f16.f16", half, selector=0, a=(0, 128, 256), b=(0, 1024, 128)),
        wgmma("sp_f16_b_across", 128, "f32.f16.f16", half, selector=0, b=across, trans=(0, 1)),
        wgmma("sp_f16_a_across", 64, "f32.f16.f16", half, selector=1, a=across, trans=(1, 0)),
        wgmma("sp_f16_b_across_64", 64, "f32.f16.f16", half, selector=1, b=(64, 2048, 512), trans=(0, 1)),
        wgmma("sp_f16_registers", 128, "f32.f16.f16", half, selector=1, a=None),
        wgmma(
            "sp_f16_registers_across", 128, "f32.f16.f16", half, selector=0, a=None, b=across, trans=(0, 1)
        ),
        wgmma("sp_f16_sums", 64, "f16.f16.f16", half, selector=0, floats=2e-2),
        wgmma("sp_bf16", 128, "f32.bf16.bf16", bf16, selector=0),
        wgmma("sp_bf16_registers", 64, "f32.bf16.bf16", bf16, selector=1, a=None),
        wgmma("sp_e4m3", 64, "f32.e4m3.e4m3", e4m3, selector=0, floats=5e-3),
        wgmma("sp_e4m3_registers", 64, "f32.e4m3.e4m3", e4m3, selector=0, a=None, floats=5e-3),
        wgmma("sp_s8", 64, "s32.s8.s8", np.int8, selector=0),
        wgmma("sp_u8_s8", 64, "s32.u8.s8", np.uint8, selector=0),
    ]
