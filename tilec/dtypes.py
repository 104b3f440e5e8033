"""The one table of element types: names, widths, C types, DLPack codes, NumPy and torch names.

A dtype is named by its canonical name ("float16"); ``find`` accepts the aliases of the tile language too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilec.packages import lent
from tilec.spelling import nearest

#: DLDataTypeCode of DLPack 1.1.
DL_INT, DL_UINT, DL_FLOAT, DL_BFLOAT, DL_BOOL = 0, 1, 2, 4, 6
DL_FLOAT8_E4M3FN, DL_FLOAT8_E5M2, DL_FLOAT8_E8M0FNU, DL_FLOAT4_E2M1FN = 10, 12, 14, 17


@dataclass(frozen=True)
class DType:
    """One element type.

    ``bits``: width of one element (4 for packed types, two per byte, low nibble first). ``c_storage``: C type
    of an element in memory ("uint16_t" for float16). ``c_scalar``: C type of a scalar argument (float16,
    bfloat16 and float8 travel as float, bool as bool). ``kind``: "bool", "int", "uint" or "float".
    ``dlpack``: the DLDataTypeCode. ``numpy`` and ``torch``: attribute names in those modules, None where they
    have none; NumPy names that start with ``ml_dtypes.`` live in that package.
    """

    name: str
    bits: int
    kind: str
    c_storage: str
    c_scalar: str
    dlpack: int
    numpy: str | None
    torch: str | None

    @property
    def bytes(self) -> int:
        """Bytes of one element, 1 for packed types."""
        return max(1, self.bits // 8)

    @property
    def tvm(self) -> str:
        """TVM's name of the type: the canonical name."""
        return self.name

    @property
    def is_float(self) -> bool:
        """Whether it is a floating-point type."""
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        """Whether it is a signed or unsigned integer type (bool is not)."""
        return self.kind in ("int", "uint")


def _integer(name: str, bits: int, *, torch: str | None) -> DType:
    kind = "uint" if name.startswith("u") else "int"
    code = DL_UINT if kind == "uint" else DL_INT
    return DType(name, bits, kind, f"{name}_t", f"{name}_t", code, name, torch)


def _small_float(name: str, bits: int, code: int, *, torch: str | None) -> DType:
    return DType(name, bits, "float", "uint8_t", "float", code, f"ml_dtypes.{name}", torch)


_ROWS = (
    DType("bool", 8, "bool", "bool", "bool", DL_BOOL, "bool_", "bool"),
    DType("int4", 4, "int", "uint8_t", "int8_t", DL_INT, "ml_dtypes.int4", None),
    DType("uint4", 4, "uint", "uint8_t", "uint8_t", DL_UINT, "ml_dtypes.uint4", None),
    _integer("int8", 8, torch="int8"),
    _integer("int16", 16, torch="int16"),
    _integer("int32", 32, torch="int32"),
    _integer("int64", 64, torch="int64"),
    _integer("uint8", 8, torch="uint8"),
    _integer("uint16", 16, torch="uint16"),
    _integer("uint32", 32, torch="uint32"),
    _integer("uint64", 64, torch="uint64"),
    DType("float16", 16, "float", "uint16_t", "float", DL_FLOAT, "float16", "float16"),
    DType("bfloat16", 16, "float", "uint16_t", "float", DL_BFLOAT, "ml_dtypes.bfloat16", "bfloat16"),
    DType("float32", 32, "float", "float", "float", DL_FLOAT, "float32", "float32"),
    DType("float64", 64, "float", "double", "double", DL_FLOAT, "float64", "float64"),
    DType("tfloat32", 32, "float", "float", "float", DL_FLOAT, "float32", "float32"),
    _small_float("float8_e4m3fn", 8, DL_FLOAT8_E4M3FN, torch="float8_e4m3fn"),
    _small_float("float8_e5m2", 8, DL_FLOAT8_E5M2, torch="float8_e5m2"),
    _small_float("float8_e8m0fnu", 8, DL_FLOAT8_E8M0FNU, torch="float8_e8m0fnu"),
    _small_float("float4_e2m1fn", 4, DL_FLOAT4_E2M1FN, torch=None),
)

#: Every dtype by its canonical name.
DTYPES: dict[str, DType] = {row.name: row for row in _ROWS}


@dataclass(frozen=True)
class FloatFormat:
    """The bits of a float of 8 or 16 bits: ``exponent`` of them with their ``bias``, ``mantissa`` below. With
    infinities the largest exponent is for them and NaN; without, the last code of each sign alone is NaN
    (P. Micikevicius et al., "FP8 Formats for Deep Learning", 2022)."""

    exponent: int
    mantissa: int
    has_infinity: bool = True

    @property
    def bias(self) -> int:
        """Of the exponent."""
        return (1 << self.exponent - 1) - 1

    @property
    def first_special(self) -> int:
        """The least magnitude, as bits, that is no finite number."""
        exponents = (1 << self.exponent) - 1
        return exponents << self.mantissa if self.has_infinity else (exponents + 1 << self.mantissa) - 1

    @property
    def largest(self) -> float:
        """The largest finite value."""
        return self.beyond - 2.0 ** (self._top - self.mantissa)

    @property
    def beyond(self) -> float:
        """What would be the next value behind the largest one."""
        return 2.0 ** (self._top + 1) if self.has_infinity else (2 - 2.0**-self.mantissa) * 2.0**self._top

    @property
    def _top(self) -> int:
        """The exponent of the largest value."""
        return self.bias if self.has_infinity else self.bias + 1


FLOAT_FORMATS: dict[str, FloatFormat] = {
    "float16": FloatFormat(5, 10),
    "bfloat16": FloatFormat(8, 7),
    "float8_e4m3fn": FloatFormat(4, 3, has_infinity=False),
    "float8_e5m2": FloatFormat(5, 2),
}

#: Other spellings that kernels use.
ALIASES: dict[str, str] = {
    "short": "int16",
    "int": "int32",
    "uint": "uint32",
    "long": "int64",
    "ulong": "uint64",
    "half": "float16",
    "float": "float32",
    "double": "float64",
    "float8_e4m3": "float8_e4m3fn",
    "bool_": "bool",
    "handle": "int64",
}

#: Names of the language that no target of tilec stores; using one is refused by name.
REFUSED = (
    "float8_e3m4",
    "float8_e4m3b11fnuz",
    "float8_e4m3fnuz",
    "float8_e5m2fnuz",
    "float6_e2m3fn",
    "float6_e3m2fn",
    "float4_e2m1_unpacked",
)

LANES = (2, 4, 8, 16, 32, 64)


def find(name: str) -> DType | None:
    """The row of a canonical name or an alias; None for an unknown name."""
    return DTYPES.get(ALIASES.get(name, name))


def lookup(name: str) -> DType:
    """As `find`; raises ValueError naming the nearest known dtype."""
    row = find(name)
    if row is not None:
        return row
    longer = [repr(each) for each in DTYPES if each.startswith(f"{name}_")]
    near = " or ".join(longer) or repr(nearest(name, (*DTYPES, *ALIASES)) or "")
    hint = f"; did you mean {near}?" if near != "''" else ""
    raise ValueError(f"unknown dtype {name!r}{hint}")


def split_lanes(name: str) -> tuple[str, int]:
    """("float32x4") -> ("float32", 4); a scalar name has one lane. The element name is not checked."""
    base, _, lanes = name.rpartition("x")
    if base and lanes.isdigit() and int(lanes) in LANES:
        return base, int(lanes)
    return name, 1


def __getattr__(name: str) -> Any:
    """Kernel files take dtypes of the language from here, as `tilec.dtypes.float16`, and their tables."""
    return lent(__name__, name)
