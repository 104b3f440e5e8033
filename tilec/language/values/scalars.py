"""Dtype objects of the language: strings that know their width and cast when they are called."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from tilec import dtypes
from tilec.errors import SourceTypeError, SourceValueError
from tilec.language.values.kernel.places import source_error, unsupported

#: Python types that stand for dtypes.
PYTHON_TYPES = {bool: "bool", int: "int32", float: "float32"}


#: What a call of a dtype does, from a module that has values.
_calls: list[Callable[[dtype, tuple[Any, ...]], Any]] = []


def define_calls(call: Callable[[dtype, tuple[Any, ...]], Any]) -> None:
    """Calls of dtypes are ``call(the dtype, the arguments)`` from now on."""
    _calls[:] = [call]


class dtype(str):
    """A dtype of the language, equal to its canonical name: ``T.float16 == "float16"``.

    Called with a value it casts; ``dtype(x)`` itself normalises names, torch and NumPy dtypes and the Python
    types bool, int and float. Raises `SourceValueError` for an unknown name, `SourceTypeError` for other
    objects.
    """

    __slots__ = ()

    def __new__(cls, spec: Any) -> dtype:
        """The dtype that ``spec`` stands for."""
        if type(spec) is cls:
            return spec
        return str.__new__(cls, canonical(spec))

    @property
    def lanes(self) -> int:
        """Elements of a vector dtype, 1 for scalars."""
        return dtypes.split_lanes(self)[1]

    @property
    def row(self) -> dtypes.DType:
        """The table's entry of the element type."""
        return dtypes.DTYPES[dtypes.split_lanes(self)[0]]

    @property
    def bits(self) -> int:
        """Width of one element in bits."""
        return self.row.bits

    @property
    def bytes(self) -> int:
        """Bytes of one value, all lanes."""
        return max(1, self.row.bits * self.lanes // 8)

    itemsize = bytes

    def as_torch(self) -> Any:
        """The torch dtype of the same name."""
        import torch

        return getattr(torch, self.row.torch or str(self))

    def __call__(self, *values: Any) -> Any:
        """``T.float16(x)``: the value cast to this dtype; a number becomes a typed constant. ``T.int32()`` is
        a new runtime dimension without a name, ``T.float16x2(a, b)`` a vector."""
        return _calls[0](self, values)


class Pointer(dtype):
    """``T.ptr``: as an annotation an address, as an element type int64."""

    __slots__ = ()

    def __new__(cls, name: str) -> Pointer:
        """An address that is written ``name``."""
        return str.__new__(cls, name)


def check_storage(kind: dtype) -> None:
    """Raise `UnsupportedError` for a dtype that no tensor or tile can have yet."""
    if kind.lanes != 1:
        raise unsupported(f"storage of {kind} here", remedy="add an axis of that many elements")
    if kind.bits < 8:
        raise unsupported(f"storage of {kind}", remedy="store bytes (uint8) and unpack with >> and &")


def element_of(kind: dtype) -> dtype:
    """The dtype that memory holds for one lane: float32 for tfloat32."""
    return dtype("float32" if kind.row.name == "tfloat32" else kind.row.name)


def _for_a_dtype(spec: Any) -> str:
    """What to write where ``spec`` stands for a dtype and is none."""
    if isinstance(spec, (int, float)):
        return "give T.float16 or the like; a shape in front of it is a tuple, (M, N)"
    return "use T.float16 and friends or their names"


def canonical(spec: Any) -> str:
    """The canonical name of anything that stands for a dtype."""
    if isinstance(spec, str):
        return _canonical_name(spec)
    if isinstance(spec, type) and spec in PYTHON_TYPES:
        return PYTHON_TYPES[spec]
    name = _foreign_name(spec)
    if name is None:
        raise source_error(SourceTypeError, f"{spec!r} is no dtype", remedy=_for_a_dtype(spec))
    return _canonical_name(name)


def is_dtype_like(spec: Any) -> bool:
    """Whether ``spec`` can stand for a dtype (strings count without a look at the name)."""
    return (
        isinstance(spec, str) or any(spec is kind for kind in PYTHON_TYPES) or _foreign_name(spec) is not None
    )


def _canonical_name(name: str) -> str:
    base, lanes = dtypes.split_lanes(name)
    if base in dtypes.REFUSED:
        raise unsupported(
            f"dtype {name}", why="no target of tilec stores it", remedy="use float8_e4m3fn or float8_e5m2"
        )
    try:
        row = dtypes.lookup(base if dtypes.find(base) else name)  # complex64 has no 64 lanes
    except ValueError as error:
        raise source_error(
            SourceValueError, str(error), remedy="use T.float16 and friends or their names"
        ) from error
    return row.name if lanes == 1 else f"{row.name}x{lanes}"


def _foreign_name(spec: Any) -> str | None:
    """The name of a torch or NumPy dtype; those packages are only asked when they are loaded already."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(spec, torch.dtype):
        return str(spec).removeprefix("torch.")
    numpy = sys.modules.get("numpy")
    if numpy is None or not (isinstance(spec, numpy.dtype) or _is_numpy_type(numpy, spec)):
        return None
    return str(numpy.dtype(spec).name)


def _is_numpy_type(numpy: Any, spec: Any) -> bool:
    return isinstance(spec, type) and issubclass(spec, numpy.generic)


def _make(name: str) -> dtype:
    return str.__new__(dtype, name)


def _vectors(name: str) -> dict[str, dtype]:
    return {f"{name}x{lanes}": _make(f"{name}x{lanes}") for lanes in dtypes.LANES}


def namespace() -> dict[str, dtype]:
    """Every dtype name of the language with its object: canonical names, aliases and vectors."""
    names: dict[str, dtype] = {}
    for name in dtypes.DTYPES:
        names[name] = _make(name)
        if name not in ("bool", "int4", "uint4"):
            names.update(_vectors(name))
    names.update({alias: _make(name) for alias, name in dtypes.ALIASES.items() if alias != "bool_"})
    names.update({name: _make(name) for name in dtypes.REFUSED})
    return names


NAMES = namespace()
