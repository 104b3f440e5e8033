"""What C names: values, variables, and pointers to variables, registers and memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tilec.backends.cuda.device.helper import C_TYPES
from tilec.emulate.foreign.syntax import VECTORS, CType
from tilec.emulate.lanes import Lanes, Spot
from tilec.emulate.memory import At
from tilec.emulate.numbers import TYPES, cast, is_float
from tilec.emulate.runtime import columns, packed, under, wide
from tilec.errors import UnsupportedError


@dataclass(frozen=True)
class Scalar:
    """A value and its dtype; "map" for a tensor map, "text" for a string."""

    value: Any
    dtype: str

    def to(self, dtype: str) -> Scalar:
        """Converted as C does it."""
        return self if self.dtype in (dtype, "map") else Scalar(cast(self.value, self.dtype, dtype), dtype)

    @property
    def is_integer(self) -> bool:
        """Whether it is no float."""
        return not is_float(self.dtype)


Vector = tuple[Scalar, ...]


@dataclass(frozen=True)
class Part:
    """An element of a variable: of ``parts``, one for a scalar."""

    parts: list[Any]
    dtype: str
    index: Any = 0


@dataclass(frozen=True)
class Pointer:
    """A place: elements of ``dtype``, ``lanes`` of them at once."""

    to: At | Spot | Part
    dtype: str
    lanes: int = 1

    def typed(self, kind: CType) -> Pointer:
        """The same place as one of another type."""
        dtype, lanes = element(kind)
        return self if dtype == "void" else Pointer(self.to, dtype, lanes)

    def moved(self, index: Any) -> Pointer:
        """``self + index``."""
        to, size = self.to, TYPES[self.dtype].itemsize * self.lanes
        if isinstance(to, At):
            return replace(self, to=At(to.memory, to.offset + wide(index) * size))
        own = TYPES[to.registers.dtype if isinstance(to, Spot) else to.dtype].itemsize
        if size % own:
            raise UnsupportedError(f"a step of {size} bytes over elements of {own}")
        return replace(self, to=replace(to, index=to.index + index * (size // own)))


Operand = Scalar | Vector | Pointer


def element(kind: CType) -> tuple[str, int]:
    """The dtype and the components of a type, pointers aside."""
    return VECTORS[kind.name] if kind.name in VECTORS else (C_TYPES.get(kind.name, kind.name), 1)


def read(place: Pointer, lanes: Lanes) -> Scalar | Vector:
    """What is there."""
    to, dtype = place.to, place.dtype
    if isinstance(to, Part) and to.dtype == dtype:
        found = to.parts[to.index : to.index + place.lanes]
    elif not isinstance(to, Part) and place.lanes == 1:
        found = [lanes.load(to, dtype)]
    else:
        found = columns(_bytes(place, lanes), dtype)
    return Scalar(found[0], dtype) if place.lanes == 1 else tuple(Scalar(part, dtype) for part in found)


def _bytes(place: Pointer, lanes: Lanes) -> Any:
    to, size = place.to, TYPES[place.dtype].itemsize * place.lanes
    if not isinstance(to, Part):
        return lanes.rows(to, size)
    return packed(lanes.g, to.parts[to.index :][: size // TYPES[to.dtype].itemsize], to.dtype)


def write(place: Pointer, value: Scalar | Vector, lanes: Lanes, is_masked: bool) -> None:
    """Sets it; variables in the lanes that run alone where these are ``is_masked``."""
    to, given = place.to, value if isinstance(value, tuple) else (value.to(place.dtype),)
    if not isinstance(to, Part):
        if place.lanes == 1:
            lanes.store(to, place.dtype, given[0].value)
        else:
            lanes.put(to, packed(lanes.g, [part.value for part in given], place.dtype))
        return
    made = [part.value for part in given]
    if to.dtype != place.dtype:
        made = columns(packed(lanes.g, made, place.dtype), to.dtype)
    for number, part in enumerate(made, to.index):
        to.parts[number] = under(lanes.m, part, to.parts[number], to.dtype) if is_masked else part
