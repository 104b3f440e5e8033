"""Allocations: tiles of a block, scalars of a thread, workspace of a call."""

from __future__ import annotations

import math
from typing import Any

from tilec.errors import SourceTypeError, SourceValueError
from tilec.ir import nodes as ir
from tilec.language.tiles.memory.buffers import Buffer, Element
from tilec.language.tiles.memory.packed import memory_shape, memory_type, of_kind
from tilec.language.tiles.memory.reshape import entries_of
from tilec.language.tiles.parameters.signatures import Tensor
from tilec.language.values.kernel import session as sessions
from tilec.language.values.kernel.places import loc, source_error, unsupported
from tilec.language.values.operand_errors import FOR_A_WHOLE
from tilec.language.values.operands import expression, stored_value, warn_of_loss
from tilec.language.values.outside_parallel import outside_parallel
from tilec.language.values.scalars import check_storage
from tilec.language.values.scalars import dtype as make_dtype
from tilec.language.values.value import Deferred, Value, as_int

_SHARED = ("shared", "shared.dyn")
#: Elements of a tile are counted in 32 bits.
_MOST_ELEMENTS = 2**31 - 1


def alloc_shared(shape: Any, dtype: Any, scope: str = "shared.dyn") -> Buffer:
    """A tile of the block in shared memory. Extents are build-time integers."""
    make_dtype(dtype)
    if scope not in _SHARED:
        raise source_error(
            SourceValueError,
            f"scope {scope!r} is no shared memory",
            construct="T.alloc_shared",
            remedy='leave scope out, or write "shared" or "shared.dyn"',
        )
    return _block_tile("T.alloc_shared", shape, dtype, "shared.dyn")


def alloc_fragment(shape: Any, dtype: Any, scope: str = "local.fragment") -> Buffer:
    """A tile of the block in registers; ``shape`` is what the whole block sees. Scope "local":
    `alloc_local`."""
    make_dtype(dtype)  # a shape that is written without brackets is told of before its last extent is a scope
    if scope == "local":
        return alloc_local(shape, dtype)
    if scope != "local.fragment":
        raise source_error(
            SourceValueError,
            f"scope {scope!r} is no fragment",
            construct="T.alloc_fragment",
            remedy="leave scope out, or use T.alloc_shared for memory of the block",
        )
    return _block_tile("T.alloc_fragment", shape, dtype, "local.fragment")


def alloc_local(shape: Any, dtype: Any, scope: str = "local") -> Buffer:
    """An array of each thread."""
    if scope not in ("local", "local.fragment"):
        raise source_error(
            SourceValueError,
            f"scope {scope!r} is not local",
            construct="T.alloc_local",
            remedy="leave scope out, or use T.alloc_shared for memory of the block",
        )
    return _tile("T.alloc_local", shape, dtype, scope)


def alloc_var(dtype: Any, *args: Any, init: Any = None, scope: str | None = None) -> Element:
    """A mutable scalar used by its bare name, zero at first unless ``init`` is given.

    Positional arguments after the dtype: a string is the scope, anything else ``init``. Raises
    `SourceTypeError` for ``init`` given twice, a scope that is no string, or more than three arguments."""
    init, scope = _var_arguments(args, init, scope)
    kind = make_dtype(dtype)
    if scope not in (None, "local.var", "local"):
        raise unsupported(
            f"T.alloc_var in scope {scope}", remedy="use T.alloc_shared for memory of the block"
        )
    builder = sessions.builder("T.alloc_var")
    var = _declare(builder.wish("v"), (1,), kind, "local.var")
    value = None if init is None else stored_value(init, kind, "T.alloc_var")
    warn_of_loss(init, kind, "T.alloc_var")
    builder.emit(ir.Alloc(var, value, loc=loc()), "T.alloc_var")
    made = Element(Buffer(var, (1,), frame=builder.region()), (expression(0),), reference=True)
    builder.unnamed.append(made)
    return made


def alloc_global(shape: Any, dtype: Any, scope: str = "global") -> Buffer:
    """Workspace of one call, shared by its launches; the shape may use dimensions. Contents undefined."""
    extents = entries_of(shape)
    for entry in extents:
        if isinstance(entry, Value) and entry.text is None:
            raise source_error(
                SourceValueError,
                f"T.alloc_global extent {entry!r} does not follow from the dimensions",
                construct="T.alloc_global",
                remedy="compute it from T.const / T.dynamic dimensions",
            )
    builder = sessions.builder("T.alloc_global")
    var = _declare(builder.wish("workspace"), extents, make_dtype(dtype), "global.workspace")
    builder.alloc_global(ir.Alloc(var, loc=loc()))
    return Buffer(var, extents)


def alloc_buffer(
    shape: Any, dtype: Any = "float32", data: Any = None, *, scope: str = "global", **others: Any
) -> Buffer:
    """A buffer by the name of its memory: global (workspace), shared, shared.dyn, local, local.fragment; with
    ``data`` of another buffer a view of that. Further arguments of TVM's are refused."""
    given = {key: value for key, value in others.items() if value not in (None, 0, "", ())}
    if given:
        raise unsupported(f"T.alloc_buffer({next(iter(given))}=...)", remedy="leave it out")
    if data is not None:
        alias: Buffer = Tensor(shape, dtype, data)
        return alias
    if scope in _SHARED:
        return alloc_shared(shape, dtype)
    makers = {"global": alloc_global, "local": alloc_local, "local.fragment": alloc_fragment}
    if scope not in makers:
        raise source_error(
            SourceValueError,
            f"scope {scope!r} is no memory",
            construct="T.alloc_buffer",
            remedy=f"use one of {', '.join((*makers, *_SHARED))}",
        )
    return makers[scope](shape, dtype)


def allocate(extents: Any, dtype: Any, scope: str = "global", **others: Any) -> Buffer:
    """`alloc_buffer` with the scope as third argument."""
    return alloc_buffer(extents, dtype, scope=scope, **others)


def _block_tile(construct: str, shape: Any, dtype: Any, scope: str) -> Buffer:
    """A tile that a block has once, whatever iteration would ask for it."""
    remedy = "allocate it in front of the loop; memory of one iteration is T.alloc_local or T.alloc_var"
    outside_parallel(construct, remedy, "a tile is the whole block's: all iterations would have the same one")
    return _tile(construct, shape, dtype, scope)


def _tile(construct: str, shape: Any, dtype: Any, scope: str) -> Buffer:
    extents = tuple(_fixed(construct, entry) for entry in entries_of(shape))
    _check_size(construct, extents)
    kind = make_dtype(dtype)
    inner = memory_shape(extents, kind, construct)
    builder = sessions.builder(construct)
    var = _declare(builder.wish(construct.rpartition("_")[2]), inner, memory_type(kind), scope)
    builder.emit(ir.Alloc(var, loc=loc()), construct)
    if kind.bits < 8 and scope == "local":  # a store of half a byte reads the other half
        whole = ir.Region(var, tuple(expression(0) for _ in inner), inner)
        builder.emit(ir.Fill(whole, stored_value(0, memory_type(kind)), loc=loc()), construct)
    return of_kind(Buffer(var, inner, frame=builder.region()), extents, kind)


def _check_size(construct: str, extents: tuple[int, ...]) -> None:
    if math.prod(extents) > _MOST_ELEMENTS:
        raise source_error(
            SourceValueError,
            f"{construct} of {' x '.join(map(str, extents))} elements",
            construct=construct,
            why=f"a tile has {_MOST_ELEMENTS} at most",
            remedy="make the tile smaller; where its size is from the config, correct that",
        )


def _fixed(construct: str, entry: Any) -> int:
    known = sessions.constant(entry.expr) if isinstance(entry, Value) else as_int(entry)
    if known is None or isinstance(known, Deferred):
        raise source_error(
            SourceValueError,
            f"{construct} extent {entry!r} is not known while building",
            construct=construct,
            why="memory on the chip has build-time extents",
            remedy="use a config parameter for the tile, or give the dimension integers in dims",
        )
    if isinstance(known, bool) or not isinstance(known, int):
        raise source_error(
            SourceTypeError,
            f"{construct} extent {entry!r} is no integer",
            construct=construct,
            remedy=FOR_A_WHOLE,
        )
    if known <= 0:
        raise source_error(
            SourceValueError,
            f"{construct} extent {known} is not positive",
            construct=construct,
            remedy="give an extent of 1 or more",
        )
    return known


def _declare(name: str, shape: tuple[Any, ...], kind: make_dtype, scope: str) -> Any:
    from tvm import tirx

    check_storage(kind)
    extents = [int(entry) if isinstance(entry, int) else entry.expr for entry in shape]
    return tirx.decl_buffer(extents, str(kind), name, scope=scope)


def _var_arguments(args: tuple[Any, ...], init: Any, scope: Any) -> tuple[Any, Any]:
    if len(args) > 2:
        raise source_error(
            SourceTypeError,
            "T.alloc_var takes a dtype, an init and a scope",
            construct="T.alloc_var",
            remedy="write T.alloc_var(dtype, init)",
        )
    for arg in args:
        if isinstance(arg, str) and not isinstance(arg, make_dtype) and scope is None:
            scope = arg
        elif init is None:
            init = arg
        else:
            raise source_error(
                SourceTypeError, "T.alloc_var got init twice", construct="T.alloc_var", remedy="give it once"
            )
    if scope is not None and not isinstance(scope, str):
        raise source_error(
            SourceTypeError,
            f"T.alloc_var scope {scope!r} is no string",
            construct="T.alloc_var",
            remedy='leave scope out, or write "local.var"',
        )
    return init, scope
