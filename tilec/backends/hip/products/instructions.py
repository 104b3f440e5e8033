"""Matrix instructions of AMD GPUs: what each multiplies, and where its lanes have rows, columns and depth.

Every one used here makes 16 by 16 sums. Lane l has row l % 16 of one operand and column l % 16 of the other;
lanes 16 apart have other depths of these, a piece each, but on RDNA3, where both halves of a wave have all.
Sums: lane l has column l % 16, and of the rows a piece of 4 (MFMA) or 8 (WMMA) neighbours; on RDNA3 every
second one. (AMD's instruction set architecture documents: MI200, MI300 and CDNA4, "Matrix Arithmetic
Instructions"; RDNA3 and RDNA4, "Wave Matrix Multiply Accumulate".)

The rows of the instruction are columns of the product here, and its columns the product's rows: a lane then
has neighbouring columns of a row, and the sums of one product lie as the next one takes them for an operand.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilec.backends.hip.chips import chip_of
from tilec.targets import Target

#: Rows and columns of sums; bytes along K of one step of a product, of one or two instructions.
SIDE, STEP_BYTES = 16, 32


@dataclass(frozen=True)
class Form:
    """``lanes`` of a wave; ``run`` neighbouring rows of sums in a lane; ``words`` of one step of an operand
    in a lane. ``repeats``: lanes of both halves hold all depths; sums have every second row."""

    name: str
    lanes: int
    run: int
    words: int
    repeats: bool = False

    @property
    def warps(self) -> int:
        """Warps of 32 lanes in a wave."""
        return self.lanes // 32


FORMS = {
    "mfma": Form("mfma", 64, 4, 2),
    "wmma11": Form("wmma", 32, 8, 8, repeats=True),
    "wmma12": Form("wmma", 32, 8, 4),
}


@dataclass(frozen=True)
class Matrix:
    """An instruction: clang's ``builtin``, the C types of operands and sums in a lane, ``per_step`` how many
    make a step, what stands before each operand and behind all of them."""

    builtin: str
    operand: str
    count: int
    sums: str
    per_step: int = 1
    before: str = ""
    behind: str = ""


_MFMA, _WMMA = "__builtin_amdgcn_mfma_", "__builtin_amdgcn_wmma_"
_ZEROS = ", 0, 0, 0"
_HALF, _BFLOAT, _FLOAT = "float16", "bfloat16", "float32"


def _same(dtype: str, sums: str) -> tuple[str, str, str]:
    return dtype, dtype, sums


_MFMAS = {
    _same(_HALF, _FLOAT): Matrix(f"{_MFMA}f32_16x16x16f16", "_Float16", 4, "float", behind=_ZEROS),
    _same(_BFLOAT, _FLOAT): Matrix(f"{_MFMA}f32_16x16x16bf16_1k", "short", 4, "float", behind=_ZEROS),
    _same(_FLOAT, _FLOAT): Matrix(f"{_MFMA}f32_16x16x4f32", "float", 1, "float", 2, behind=_ZEROS),
    _same("int8", "int32"): Matrix(f"{_MFMA}i32_16x16x32_i8", "long", 1, "int", behind=_ZEROS),
}
_MFMAS_90A = {
    **_MFMAS,
    _same("int8", "int32"): Matrix(f"{_MFMA}i32_16x16x16i8", "int", 1, "int", 2, behind=_ZEROS),
}


def _wmmas(halves: int, words: int, suffix: str) -> dict[tuple[str, str, str], Matrix]:
    """With so many 16-bit elements of an operand in a lane, and words of bytes."""
    bytes_ = Matrix(f"{_WMMA}i32_16x16x16_iu8_w32{suffix}", "int", words, "int", 2, "true, ", ", false")
    return {
        _same(_HALF, _FLOAT): Matrix(f"{_WMMA}f32_16x16x16_f16_w32{suffix}", "_Float16", halves, "float"),
        _same(_BFLOAT, _FLOAT): Matrix(f"{_WMMA}f32_16x16x16_bf16_w32{suffix}", "short", halves, "float"),
        _same("int8", "int32"): bytes_,
    }


_MATRICES = {"wmma11": _wmmas(16, 4, ""), "wmma12": _wmmas(8, 2, "_gfx12")}


def form_of(target: Target) -> Form:
    """How the waves of a target multiply."""
    return FORMS[chip_of(target).products]


def matrix(target: Target, types: tuple[str, str, str]) -> Matrix | None:
    """The instruction for operands and sums of these types (a, b, c); None where there is none."""
    known = _MATRICES.get(chip_of(target).products) or (_MFMAS_90A if _is_first(target) else _MFMAS)
    return known.get(types)


def _is_first(target: Target) -> bool:
    """Whether a target is of the generation before MI300."""
    return target.name == "gfx90a"
