"""What parameters are: T.Tensor, T.StridedTensor, scalars, dimensions, outputs."""

from __future__ import annotations

import keyword
from dataclasses import dataclass
from typing import Any

from tilec.errors import SourceError, SourceRuntimeError, SourceTypeError, SourceValueError
from tilec.ir.guards import largest_dim
from tilec.language.tiles.memory.buffers import Buffer, Handle
from tilec.language.tiles.memory.packed import memory_shape, memory_type, of_kind
from tilec.language.tiles.memory.reshape import alias
from tilec.language.tiles.parameters.tensor_specs import TensorSpec, is_open
from tilec.language.values.kernel import session as sessions
from tilec.language.values.kernel.places import source_error, unsupported
from tilec.language.values.operand_errors import FOR_A_WHOLE
from tilec.language.values.scalars import check_storage
from tilec.language.values.scalars import dtype as make_dtype
from tilec.language.values.value import Deferred, Value, as_int, resolve, text_of


@dataclass(frozen=True, eq=False)
class TensorType:
    """The annotation of a tensor parameter. ``strides`` in elements, None for row-major contiguous."""

    shape: tuple[Any, ...]
    dtype: make_dtype
    strides: tuple[Any, ...] | None = None

    def __getitem__(self, indices: Any) -> Any:
        raise source_error(
            SourceTypeError,
            "a T.Tensor of a shape alone has no elements",
            why="it says what a parameter is",
            remedy="use T.alloc_shared or T.alloc_fragment for a tile, T.alloc_global for scratch memory, "
            "or T.Tensor(shape, dtype, A.data) for what lies in A",
        )

    def __setitem__(self, indices: Any, value: Any) -> None:
        self[indices]


@dataclass(frozen=True)
class Declared:
    """A tensor parameter in use: its buffer and the texts of extents and strides."""

    name: str
    buffer: Buffer
    extents: tuple[str, ...]
    strides: tuple[str, ...] | None
    pointer: bool = False


class _TensorMaker:
    """``T.Tensor(shape, dtype)``, ``T.Tensor[[M, N], dtype]``, ``T.Tensor[M, N]`` (float32)."""

    def __call__(self, shape: Any, dtype: Any = "float32", data: Any = None, scope: str | None = None) -> Any:
        if data is not None:
            return _alias(shape, dtype, data)
        if scope not in (None, "global"):
            raise unsupported(f"T.Tensor in scope {scope}", remedy="use T.alloc_shared or T.alloc_fragment")
        if isinstance(shape, (tuple, list)) and any(map(is_open, shape)):
            return TensorSpec(tuple(shape), make_dtype(dtype))
        return TensorType(_entries(shape), make_dtype(dtype))

    def __getitem__(self, keys: Any) -> Any:
        items = keys if isinstance(keys, tuple) else (keys,)
        if any(isinstance(item, (tuple, list, str)) for item in items):
            return self(*items)
        if any(map(is_open, items)):
            return TensorSpec(items)
        return self(items)


class _StridedMaker:
    """``T.StridedTensor(shape, strides, dtype)`` and the same with square brackets, where a dtype that is
    left out comes with the argument if sizes do, and is float32 otherwise."""

    def __call__(self, shape: Any, strides: Any, dtype: Any = "float32", scope: str | None = None) -> Any:
        if scope not in (None, "global"):
            raise unsupported(f"T.StridedTensor in scope {scope}", remedy="use T.alloc_shared")
        rows = _tuple(shape), _tuple(strides)
        if len(rows[0]) != len(rows[1]):
            raise source_error(
                SourceValueError,
                f"{len(rows[0])} extents but {len(rows[1])} strides",
                construct="T.StridedTensor",
                remedy="give one stride per extent",
            )
        if any(is_open(entry) for row in rows for entry in row):
            return TensorSpec(rows[0], None if dtype is None else make_dtype(dtype), rows[1])
        return TensorType(_entries(shape), make_dtype(dtype or "float32"), _entries(strides))

    def __getitem__(self, keys: Any) -> Any:
        shape, strides, *rest = keys
        return self(shape, strides, rest[0] if rest else None)


Tensor = _TensorMaker()
StridedTensor = _StridedMaker()


def Buffer_(
    shape: Any,
    dtype: Any = "float32",
    data: Any = None,
    strides: Any = None,
    elem_offset: Any = None,
    scope: str = "global",
    align: int = 0,
    offset_factor: int = 0,
    buffer_type: str = "",
    axis_separators: Any = None,
) -> Any:
    """``T.Buffer``: the older spelling of `Tensor`; arguments beyond shape, dtype and strides are refused."""
    others = {
        "data": data is not None,
        "elem_offset": elem_offset is not None,
        "scope": scope != "global",
        "align": align != 0,
        "offset_factor": offset_factor != 0,
        "buffer_type": buffer_type != "",
        "axis_separators": bool(axis_separators),
    }
    for name, is_given in others.items():
        if is_given:
            raise unsupported(f"T.Buffer({name}=...)", remedy="use T.Tensor")
    return Tensor(shape, dtype) if strides is None else StridedTensor(shape, strides, dtype)


def _alias(shape: Any, dtype: Any, data: Any) -> Buffer:
    """``T.Tensor(shape, dtype, buffer.data)``: the buffer's elements under another shape."""
    if not isinstance(data, Handle):
        raise source_error(
            SourceTypeError,
            f"{data!r} is no memory of a buffer",
            construct="T.Tensor",
            remedy="give buffer.data",
        )
    entries = tuple(resolve(entry) for entry in _entries(shape))
    return alias(data.buffer, entries, "T.Tensor", make_dtype(dtype))


def _tuple(shape: Any) -> tuple[Any, ...]:
    return tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)


def _entries(shape: Any) -> tuple[Any, ...]:
    entries = tuple(as_int(entry) for entry in _tuple(shape))
    for entry in entries:
        if isinstance(entry, bool) or not isinstance(entry, (int, Value, Deferred)):
            raise source_error(
                SourceTypeError,
                f"{entry!r} is no extent",
                construct="T.Tensor",
                remedy=FOR_A_WHOLE
                if isinstance(entry, float)
                else "write T.Tensor[[M, N], dtype] or T.Tensor((M, N), dtype)",
            )
        if isinstance(entry, int) and entry < 0:
            raise source_error(
                SourceValueError,
                f"an extent of {entry}",
                construct="T.Tensor",
                why="a tensor has no less than 0 elements along an axis",
                remedy="give 0 or more, or T.dynamic for what calls tell",
            )
        if isinstance(entry, int) and entry > largest_dim(64):
            raise source_error(
                SourceValueError,
                f"an extent of {entry}",
                construct="T.Tensor",
                why=f"an axis has at most {largest_dim(64)} elements, which 64 bits hold",
                remedy="give fewer, or T.dynamic for what calls tell",
            )
    return entries


def declare(name: str, kind: TensorType, scope: str = "global") -> Declared:
    """The buffer of a tensor parameter. Raises `SourceError` for an extent that no dimension explains."""
    from tvm import tirx

    shape = tuple(resolve(entry) for entry in kind.shape)
    strides = None if kind.strides is None else tuple(resolve(entry) for entry in kind.strides)
    seen = shape
    if strides is None:
        shape = memory_shape(shape, kind.dtype, f"tensor {name}")
    element = memory_type(kind.dtype) if strides is None else kind.dtype
    check_storage(element)
    var = tirx.decl_buffer(
        plain_entries(shape),
        str(element),
        name,
        scope=scope,
        strides=None if strides is None else plain_entries(strides),
    )
    return Declared(
        name,
        of_kind(Buffer(var, shape, strides=strides or ()), seen, kind.dtype),
        _texts(name, shape),
        None if strides is None else _texts(name, strides),
    )


def plain_entries(entries: tuple[Any, ...]) -> list[Any]:
    """Extents or strides as TVM takes them: integers and expressions."""
    return [int(entry) if isinstance(entry, int) else entry.expr for entry in entries]


def _texts(name: str, entries: tuple[Any, ...]) -> tuple[str, ...]:
    found = [text_of(entry) for entry in entries]
    for entry, text in zip(entries, found, strict=True):
        if text is None:
            raise source_error(
                SourceError,
                f"extent {entry!r} of {name} does not follow from the dimensions",
                construct=name,
                remedy="write it with + - * // % over dimensions and integers",
            )
    return tuple(text for text in found if text is not None)


def dynamic(names: str, dtype: Any = "int32") -> Any:
    """One dimension per name (separated by commas or spaces) that stays a runtime value unless dims pins
    it."""
    kind = str(make_dtype(dtype))
    made = [_symbol(name, kind) for name in _split(names)]
    return made[0] if len(made) == 1 else tuple(made)


def _symbol(name: str, kind: str) -> Any:
    return _dimension(name, kind) if sessions.active() else Deferred(_dimension, name, kind)


def _dimension(name: str, kind: str) -> Any:
    """The dimension of that name; one name is one variable, of one dtype."""
    made = sessions.current("T.dynamic").dimension(name, kind)
    if isinstance(made, Value) and made.dtype != kind:
        raise source_error(
            SourceValueError,
            f"two variables are called {name}: one is {made.dtype}, one {kind}",
            construct=name,
            remedy="give them different names, or one dtype",
        )
    return made


def const(names: str, dtype: Any = "int32") -> Any:
    """One compile-time dimension per name; only inside an eager kernel (`SourceRuntimeError` elsewhere)."""
    if not sessions.active() or not sessions.current("T.const").is_eager:
        raise source_error(
            SourceRuntimeError,
            "T.const() works only inside an eager kernel",
            construct="T.const",
            remedy="use a factory parameter, or T.dynamic",
        )
    sessions.builder("T.const")
    sessions.current("T.const").constants.extend(_split(names))
    return dynamic(names, dtype)


def Var(name: str, dtype: Any = "int32") -> Any:
    """``T.Var``: as `dynamic` for one name."""
    return dynamic(name, dtype)


def _split(names: str) -> list[str]:
    """Names of dimensions. A word of Python has no place in sizes, which are Python's expressions: it gets an
    underscore."""
    found = names.replace(",", " ").split()
    if found and all(name.isidentifier() for name in found):
        return [f"{name}_" if keyword.iskeyword(name) else name for name in found]
    raise source_error(SourceValueError, f"{names!r} names no dimensions", remedy='write T.const("M, N")')


def empty(*shape: Any, dtype: Any = "float32") -> Buffer:
    """An output tensor of the kernel: ``T.empty((M, N), dtype)`` or ``T.empty(M, N, dtype=...)``."""
    entries, kind = shape, dtype
    if shape and isinstance(shape[0], (tuple, list)):
        entries = tuple(shape[0])
        kind = shape[1] if len(shape) == 2 else dtype
    elif shape and not isinstance(shape[-1], (int, Value, Deferred)):
        entries, kind = shape[:-1], shape[-1]
    builder = sessions.builder("T.empty")
    if builder.kernel is not None:
        raise source_error(
            SourceRuntimeError,
            "T.empty stands inside a T.Kernel block",
            construct="T.empty",
            remedy="declare outputs before the kernel",
        )
    declared = declare(builder.wish(f"out{len(builder.outputs)}"), Tensor(entries, kind))
    builder.outputs.append(declared)
    return declared.buffer
