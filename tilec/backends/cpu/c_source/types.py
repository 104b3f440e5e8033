"""Names of C types for the element types of TIR, scalar and vector."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from tilec.dtypes import DTYPES
from tilec.errors import UnsupportedError

#: TIR's scalar types -> (C type, bytes). A bool in memory is a byte; as a value it is 0 or 1.
_SCALARS = {
    **{row.name: (row.c_storage, row.bytes) for row in DTYPES.values() if row.numpy == row.name},
    "bool": ("uint8_t", 1),
    "float16": ("_Float16", 2),
}


@dataclass(frozen=True)
class CType:
    """``tag`` names the type inside of helper functions: "f32x8"; ``element``: the type of a lane."""

    name: str
    tag: str
    element: str
    bytes: int
    lanes: int
    dtype: str

    @property
    def is_vector(self) -> bool:
        """Whether it has more than one lane."""
        return self.lanes > 1

    @property
    def is_float(self) -> bool:
        """Whether lanes are floating-point numbers."""
        return self.dtype.startswith("float")

    @property
    def is_signed(self) -> bool:
        """Whether lanes are signed integers."""
        return self.dtype.startswith("int")

    @property
    def scalar(self) -> CType:
        """The type of a lane."""
        return c_type(self.dtype)


@lru_cache(maxsize=512)
def c_type(dtype: str) -> CType:
    """The C type of "float32x8". Raises UnsupportedError for what C has no type for."""
    base, lanes = re.fullmatch(r"(.*?)(?:x(\d+))?", dtype).groups()  # type: ignore[union-attr]
    if base not in _SCALARS:
        raise UnsupportedError(f"there is no C for elements of {base}")
    element, size = _SCALARS[base]
    if not lanes:
        return CType(element, _tag(base), element, size, 1, base)
    count = int(lanes)
    if count & (count - 1):
        raise UnsupportedError(f"there is no C for vectors of {count} lanes")
    return CType(f"{_tag(base)}x{count}", f"{_tag(base)}x{count}", element, size * count, count, base)


def _tag(base: str) -> str:
    """ "f32" of "float32"."""
    for word, letter in (("float", "f"), ("uint", "u"), ("int", "i")):
        if base.startswith(word):
            return letter + base.removeprefix(word)
    return "b8"
