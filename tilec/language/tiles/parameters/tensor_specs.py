"""Annotations that leave sizes to the arguments: ``T.Tensor[int, T.dyn]``, ``T.dyn[int, "n"]``.

``int`` is a constant of the tensor that is passed, ``T.dyn`` stays a runtime value. A size is called after
its place, ``A__shape_0`` or ``A__stride_1``, unless ``T.dyn`` or ``M, K = A.shape_params()`` names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilec.errors import SourceTypeError
from tilec.language.values.conversions import typed_value
from tilec.language.values.kernel import session as sessions
from tilec.language.values.kernel.places import source_error
from tilec.language.values.scalars import define_calls
from tilec.language.values.scalars import dtype as make_dtype
from tilec.language.values.value import Deferred
from tilec.language.values.vectors import pack


class Dyn(Deferred):
    """A runtime value: a dimension of a tensor, or a scalar parameter. ``name`` may be empty: a dimension is
    then called after the place where it stands first."""

    __slots__ = ("dtype", "name")

    def __init__(self, kind: Any, name: str = "") -> None:
        self.dtype = make_dtype(kind)
        self.name = name
        super().__init__(_named, name, str(self.dtype))


def _named(name: str, kind: str) -> Any:
    """The dimension of a `Dyn` that stands outside of T.Tensor[...]."""
    if not name:
        raise source_error(
            SourceTypeError,
            "an unnamed T.dyn stands alone",
            construct="T.dyn",
            remedy='name it: T.dyn["n"], or use it in T.Tensor[...] alone',
        )
    return sessions.current("T.dyn").dimension(name, kind)


class _DynMaker:
    """``T.dyn``: ``T.dyn``, ``T.dyn[int]``, ``T.dyn[float]``, ``T.dyn["n"]``, ``T.dyn[int, "n"]``."""

    def __getitem__(self, keys: Any) -> Dyn:
        items = keys if isinstance(keys, tuple) else (keys,)
        names = [item for item in items if type(item) is str]
        kinds = [item for item in items if type(item) is not str]
        if len(names) > 1 or len(kinds) > 1:
            raise source_error(
                SourceTypeError,
                f"T.dyn[{', '.join(map(repr, items))}] is no runtime value",
                construct="T.dyn",
                remedy='write T.dyn[int, "n"]',
            )
        return Dyn(kinds[0] if kinds else int, names[0] if names else "")

    def __repr__(self) -> str:
        return "T.dyn"


dyn = _DynMaker()


class Unnamed(Deferred):
    """``T.int32()``: a runtime dimension that has no name; kernels number theirs, "int32_0". Raises
    `SourceTypeError` for a dtype that is no index."""

    __slots__ = ("dtype",)

    def __init__(self, kind: make_dtype) -> None:
        if kind not in ("int32", "int64"):
            raise source_error(
                SourceTypeError,
                f"T.{kind}() is no runtime dimension",
                construct=f"T.{kind}()",
                remedy="give a value, or use T.int32() or T.int64()",
            )
        super().__init__(_unnamed, str(kind))
        self.dtype = kind

    def resolve(self) -> Any:
        """The dimension, by the order in which a kernel meets those without a name."""
        session = sessions.current(f"T.{self.dtype}()")
        known = next((number for number, each in enumerate(session.unnamed) if each is self), None)
        if known is None:
            session.unnamed.append(self)
        number = len(session.unnamed) - 1 if known is None else known
        return session.dimension(f"{self.dtype}_{number}", str(self.dtype))


def _unnamed(kind: str) -> str:
    """What is computed says no more than its dtype."""
    return kind


def is_open(entry: Any) -> bool:
    """Whether an entry of a shape is left to the arguments."""
    return entry is int or entry is dyn or (isinstance(entry, Dyn) and not entry.name)


@dataclass(frozen=True, eq=False)
class TensorSpec:
    """A tensor whose sizes (and dtype, where that is None) come with the argument. Entries of ``shape`` and
    ``strides`` are ``int``, ``T.dyn``, a `Dyn`, or what a shape of T.Tensor has."""

    shape: tuple[Any, ...]
    dtype: make_dtype | None = None
    strides: tuple[Any, ...] | None = None

    def entries(self, what: str) -> tuple[Any, ...]:
        """Those of the "shape" or the "stride"s."""
        return self.shape if what == "shape" else self.strides or ()


def place_name(param: str, what: str, axis: int) -> str:
    """What a size is called after its place."""
    return f"{param}__{what}_{axis}"


def dtype_name(param: str) -> str:
    """How a manifest names the dtype of a tensor that the annotation leaves open."""
    return f"{param}.dtype"


def filled_in(
    name: str, spec: TensorSpec, names: Mapping[str, str], dtypes: Mapping[str, Any]
) -> tuple[tuple[Any, ...], make_dtype, tuple[Any, ...] | None]:
    """Shape, dtype and strides of parameter ``name``. ``names``: what sizes are called, by their places;
    ``dtypes``: those of tensors, by parameter."""
    shape = _filled(name, spec, "shape", names)
    strides = None if spec.strides is None else _filled(name, spec, "stride", names)
    given = dtypes.get(name)
    if spec.dtype is None and given is None:
        raise source_error(
            SourceTypeError,
            f"the dtype of {name} is not known",
            construct=name,
            remedy=f'pass a tensor, or give "{dtype_name(name)}" in args',
        )
    return shape, spec.dtype or make_dtype(given), strides


def _filled(name: str, spec: TensorSpec, what: str, names: Mapping[str, str]) -> tuple[Any, ...]:
    return tuple(
        _size(entry, place_name(name, what, axis), names) for axis, entry in enumerate(spec.entries(what))
    )


def _size(entry: Any, place: str, names: Mapping[str, str]) -> Any:
    named = isinstance(entry, Dyn) and entry.name
    if not named and not is_open(entry):
        return entry
    width = str(entry.dtype) if isinstance(entry, Dyn) else "int32"
    return sessions.current(place).dimension(names.get(place, named or place), width)


def _call(kind: make_dtype, values: tuple[Any, ...]) -> Any:
    """What ``T.float16(x)`` gives: `tilec.language.values.scalars.dtype.__call__`."""
    if not values:
        return Unnamed(kind)
    if kind.lanes > 1:
        return pack(values, kind)
    if len(values) != 1:
        raise source_error(
            SourceTypeError, f"T.{kind} takes one value, got {len(values)}", remedy="use a vector dtype"
        )
    return typed_value(values[0], kind)


define_calls(_call)
