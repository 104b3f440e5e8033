"""Matrix instructions of AMD GPUs: what each multiplies, and where its lanes have rows, columns and depth.

Every one used here makes 16 by 16 sums. Lane l has row l % 16 of one operand and column l % 16 of the other;
lanes 16 apart have other depths of these, a piece each, but on RDNA3, where both halves of a wave have all.
Sums: lane l has column l % 16, and of the rows a piece of 4 (MFMA) or 8 (WMMA) neighbours; on RDNA3 every
second one, of float64 every fourth. (AMD's instruction set architecture documents: MI200, MI300 and CDNA4,
"Matrix Arithmetic Instructions"; RDNA3 and RDNA4, "Wave Matrix Multiply Accumulate".) Which depths make a
piece is free where both operands agree: a sum is over all of them.

The rows of the instruction are columns of the product here, and its columns the product's rows: a lane then
has neighbouring columns of a row, and the sums of one product lie as the next one takes them for an operand.

gfx942 reads 8-bit floats as float8_e4m3fnuz and float8_e5m2fnuz (MI300's document, "Data Types"): with a
bias larger by one, so that the bits of a number of the OCP's formats are half of it there, and with one NaN
in place of a negative zero, and none else. float8_e4m3fn is brought into such bits; float8_e5m2, whose
infinities have none, is no operand there.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilec.backends.hip.chips import chip_of
from tilec.targets import Target

#: Rows and columns of sums.
SIDE = 16


@dataclass(frozen=True)
class Form:
    """``lanes`` of a wave; ``run`` rows of sums in a lane; ``words`` of one step of an operand in a lane, a
    step being one or two instructions. ``repeats``: lanes of both halves hold all depths. ``apart``: the rows
    of a lane's sums are no neighbours, other pieces' rows are between them."""

    lanes: int
    run: int
    words: int
    repeats: bool = False
    apart: bool = False

    @property
    def warps(self) -> int:
        """Warps of 32 lanes in a wave."""
        return self.lanes // 32

    @property
    def pieces(self) -> int:
        """Of the rows of an instruction's sums."""
        return self.lanes // SIDE

    @property
    def step_bytes(self) -> int:
        """Of a row along K in one step."""
        return 4 * self.words * (1 if self.repeats else self.pieces)

    @property
    def held(self) -> int:
        """Sums of 16 bits that a lane has of one step, where they are an operand: some runs of them."""
        return 2 * self.words // (2 if self.repeats else 1)


#: By the bytes along K of a step where a chip has several.
FORMS = {
    "mfma": Form(64, 4, 2),
    "mfma_64": Form(64, 4, 4),
    "mfma_128": Form(64, 4, 8),
    "mfma_double": Form(64, 4, 2, apart=True),
    "wmma11": Form(32, 8, 8, repeats=True, apart=True),
    "wmma12": Form(32, 8, 4),
}


@dataclass(frozen=True)
class Matrix:
    """An instruction: clang's ``builtin``, the C types of operands and sums in a lane, the name of its
    ``form``, ``per_step`` how many make a step, what stands ``before`` each operand and ``behind`` all of
    them, the type that it ``reads`` operands as where that is not theirs."""

    builtin: str
    operand: str
    count: int
    sums: str
    form: str = "mfma"
    per_step: int = 1
    before: str = ""
    behind: str = ""
    reads: str = ""

    @property
    def factor(self) -> float:
        """What its products are of those of the operands, a power of two."""
        return 0.25 if self.reads else 1.0


_MFMA, _WMMA = "__builtin_amdgcn_mfma_", "__builtin_amdgcn_wmma_"
#: For small floats, 128 deep, with a scale of float8_e8m0fnu for 32 neighbours along K.
SCALED = f"{_MFMA}scale_f32_16x16x128_f8f6f4"
_ZEROS = ", 0, 0, 0"
_HALF, _BFLOAT, _FLOAT, _DOUBLE = "float16", "bfloat16", "float32", "float64"
#: The 8-bit floats of instructions by the names in them.
_SMALL = {"fp8": "float8_e4m3fn", "bf8": "float8_e5m2"}
#: Small floats by their numbers in the instruction for all of them (CDNA4's document,
#: "V_MFMA_F32_16X16X128_F8F6F4").
SMALL_FORMATS = {"float8_e4m3fn": 0, "float8_e5m2": 1, "float4_e2m1fn": 4}
#: The form of such an operand, 128 numbers deep, by how many of them a byte holds.
SMALL_FORMS = {1: "mfma_128", 2: "mfma_64"}
#: Types of operands (a, b) and sums (c), and their instructions, those of most depth first.
_Table = dict[tuple[str, str, str], tuple[Matrix, ...]]


def _same(dtype: str, sums: str) -> tuple[str, str, str]:
    return dtype, dtype, sums


def _mfma(
    name: str, operand: str, count: int, sums: str = "float", per_step: int = 1, form: str = "mfma"
) -> Matrix:
    return Matrix(f"{_MFMA}{name}", operand, count, sums, form, per_step, behind=_ZEROS)


def _small_mfma(short: str, reads: str = "") -> Matrix:
    name = f"{_MFMA}f32_16x16x32_{short}_{short}"
    return Matrix(name, "long", 1, "float", behind=_ZEROS, reads=reads)


def _deep_mfma(short: str) -> Matrix:
    """8-bit floats by the instruction for all small ones, whose formats are numbers, without scales."""
    number = SMALL_FORMATS[_SMALL[short]]
    behind = f", {number}, {number}, 0, 0, 0, 0"
    return Matrix(SCALED, "int", 8, "float", "mfma_128", behind=behind)


_ALL_MFMAS: _Table = {
    _same(_HALF, _FLOAT): (_mfma("f32_16x16x16f16", "_Float16", 4),),
    _same(_BFLOAT, _FLOAT): (_mfma("f32_16x16x16bf16_1k", "short", 4),),
    _same(_FLOAT, _FLOAT): (_mfma("f32_16x16x4f32", "float", 1, per_step=2),),
    _same(_DOUBLE, _DOUBLE): (_mfma("f64_16x16x4f64", "double", 1, "double", form="mfma_double"),),
}
_MFMAS_2: _Table = {**_ALL_MFMAS, _same("int8", "int32"): (_mfma("i32_16x16x16i8", "int", 1, "int", 2),)}
_MFMAS_3: _Table = {
    **_ALL_MFMAS,
    _same("int8", "int32"): (_mfma("i32_16x16x32_i8", "long", 1, "int"),),
    _same(_SMALL["fp8"], _FLOAT): (_small_mfma("fp8", reads="float8_e4m3fnuz"),),
}
#: What gfx950 has beside those.
_DEEP: _Table = {
    _same(_HALF, _FLOAT): (_mfma("f32_16x16x32_f16", "_Float16", 8, form="mfma_64"),),
    _same(_BFLOAT, _FLOAT): (_mfma("f32_16x16x32_bf16", "__bf16", 8, form="mfma_64"),),
    _same("int8", "int32"): (_mfma("i32_16x16x64_i8", "int", 4, "int", form="mfma_64"),),
}
_MFMAS_4: _Table = {
    **_MFMAS_3,
    **{types: (*deep, *_MFMAS_3[types]) for types, deep in _DEEP.items()},
    **{_same(_SMALL[each], _FLOAT): (_deep_mfma(each), _small_mfma(each)) for each in _SMALL},
}


def _wmmas(form: str, halves: int, words: int, suffix: str) -> _Table:
    """With so many 16-bit elements of an operand in a lane, and words of bytes."""
    floats, bytes_ = f"{_WMMA}f32_16x16x16_", f"{_WMMA}i32_16x16x16_iu8_w32{suffix}"
    return {
        _same(_HALF, _FLOAT): (Matrix(f"{floats}f16_w32{suffix}", "_Float16", halves, "float", form),),
        _same(_BFLOAT, _FLOAT): (Matrix(f"{floats}bf16_w32{suffix}", "short", halves, "float", form),),
        _same("int8", "int32"): (Matrix(bytes_, "int", words, "int", form, 2, "true, ", ", false"),),
    }


def _small_wmma(short: str) -> Matrix:
    name = f"{_WMMA}f32_16x16x16_{short}_{short}_w32_gfx12"
    return Matrix(name, "int", 2, "float", "wmma12", per_step=2)


_WMMAS_12: _Table = {
    **_wmmas("wmma12", 8, 2, "_gfx12"),
    **{_same(_SMALL[each], _FLOAT): (_small_wmma(each),) for each in _SMALL},
}
_MATRICES = {
    "mfma2": _MFMAS_2,
    "mfma3": _MFMAS_3,
    "mfma4": _MFMAS_4,
    "wmma11": _wmmas("wmma11", 16, 4, ""),
    "wmma12": _WMMAS_12,
}


def matrices(target: Target, types: tuple[str, str, str]) -> tuple[Matrix, ...]:
    """The instructions for operands and sums of these types (a, b, c), those of most depth first."""
    return _MATRICES[chip_of(target).products].get(types, ())


def has_scales(target: Target) -> bool:
    """Whether there is an instruction for small floats with scales."""
    return chip_of(target).products == "mfma4"


def matrix(target: Target, types: tuple[str, str, str], form: str) -> Matrix:
    """The one of a form that there is."""
    return next(each for each in matrices(target, types) if each.form == form)
