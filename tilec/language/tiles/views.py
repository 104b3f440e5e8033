"""Other shapes for the memory of a buffer: T.reshape, T.view and T.Tensor(shape, dtype, buffer.data).

A view has no memory and no name in the tile IR: each of its elements is one of the buffer's. Tile operations
on views that read or write elements become loops; products need a buffer of their own.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

from tilec.errors import SourceAssertionError
from tilec.ir import nodes as ir
from tilec.language.tiles.buffers import Buffer, Element
from tilec.language.values import session as sessions
from tilec.language.values.conversions import expression
from tilec.language.values.places import loc, source_error, unsupported
from tilec.language.values.scalars import dtype as make_dtype
from tilec.language.values.value import resolve

if TYPE_CHECKING:
    from tvm.ir import Expr, Var


class View(Buffer):
    """``root``'s elements in row-major order under another shape."""

    def __init__(self, root: Buffer, shape: tuple[Any, ...]) -> None:
        super().__init__(root.var, shape, frame=root.frame)
        self.root = root

    @property
    def var(self) -> Var:
        """Views have no buffer of TVM: raises `UnsupportedError` for operations that need one."""
        raise unsupported(
            f"a tile operation on a view of {self.name} that needs a buffer of its own",
            remedy="copy the view into a tile first",
        )

    def element(self, indices: tuple[Expr, ...]) -> Element:
        """One element, which is the root's."""
        return ViewElement(self, indices, self.linear(indices))

    def linear(self, indices: tuple[Expr, ...]) -> Expr:
        """The number of an element in row-major order."""
        return reduce(
            lambda so_far, axis: so_far * expression(self.shape[axis]) + indices[axis],
            range(1, len(indices)),
            indices[0],
        )

    def unravelled(self, linear: Expr) -> tuple[Expr, ...]:
        """The root's indices of its element of a number."""
        found: list[Expr] = []
        for extent in reversed(self.root.shape[1:]):
            found.insert(0, sessions.simplify(linear % expression(extent)))
            linear = linear // expression(extent)
        return (sessions.simplify(linear), *found)


class ViewElement(Element):
    """An element of a view: number ``linear`` of the root, guarded where it may lie outside of the view."""

    __slots__ = ("_place", "guard")

    def __init__(self, view: View, indices: tuple[Expr, ...], linear: Expr) -> None:
        super().__init__(view.root, view.unravelled(linear))
        self._place = view, indices
        self.guard = view.open_bounds(indices)

    @property
    def place(self) -> tuple[Buffer, tuple[Expr, ...]]:
        """The view and the indices in it."""
        return self._place

    @property
    def expr(self) -> Expr:
        """A read of the element; 0 outside of the view."""
        return self.guarded(super().expr)

    def guarded(self, found: Expr) -> Expr:
        """``found`` where the element is one of the view, else 0."""
        from tvm import tirx

        if self.guard is None:
            return found
        return tirx.if_then_else(self.guard, found, tirx.const(0, str(found.ty.dtype)))

    def store(self, value: Any) -> None:
        """Write the element, unless it lies outside of the view."""
        if self.guard is None:
            return super().store(value)
        builder = sessions.builder("a store to a view")
        frame = builder.push("if")
        super().store(value)
        return builder.emit(ir.If(self.guard, builder.pop(frame), loc=loc()), "a store to a view")


def reshape(src: Buffer, shape: Any) -> Buffer:
    """The elements of ``src`` under another shape of as many elements; `SourceAssertionError` otherwise."""
    return view(src, shape)


def view(src: Buffer, shape: Any = None, dtype: Any = None) -> Buffer:
    """The bits of ``src`` under another shape, another dtype or both; without a shape the last axis changes
    with the width. `SourceAssertionError` where the bits are not as many."""
    kind = src.dtype if dtype is None else make_dtype(dtype)
    widths = (src.dtype.bits, kind.bits)
    entries = _rescaled(src.shape, *widths) if shape is None else entries_of(shape)
    if not _same_size(src.shape, entries, *widths):
        raise source_error(
            SourceAssertionError,
            f"{src.name} of shape {_shown(src.shape)} and dtype {src.dtype} does not hold {_shown(entries)} "
            f"of {kind}",
            construct="T.reshape" if dtype is None else "T.view",
            remedy="keep the number of elements" if dtype is None else "keep the number of bits",
        )
    return alias(src, entries, "T.reshape", kind)


def alias(src: Buffer, shape: tuple[Any, ...], construct: str, kind: make_dtype | None = None) -> Buffer:
    """The elements of a contiguous buffer under another shape, whatever its size; its bits as ``kind``."""
    from tilec.language.tiles.dtype_views import Retyped

    root = src.root if isinstance(src, View) else src
    if root.is_strided:
        raise unsupported(
            f"{construct} of {root.name}, whose strides are its own", remedy="index the buffer itself"
        )
    if kind is not None and str(kind) != str(root.dtype):
        return Retyped(root, shape, kind)
    return View(root, shape)


def entries_of(shape: Any) -> tuple[Any, ...]:
    """The extents of a shape that the author wrote: a sequence, or the only one."""
    entries = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    return tuple(resolve(entry) for entry in entries)


def _same_size(old: tuple[Any, ...], new: tuple[Any, ...], *widths: int) -> bool:
    """Whether two shapes of elements of so many bits hold the same number of bits."""
    sizes = [
        reduce(lambda a, b: a * b, map(expression, shape), expression(width))
        for shape, width in zip((old, new), widths, strict=True)
    ]
    return sessions.constant(sizes[0] - sizes[1]) == 0


def _rescaled(shape: tuple[Any, ...], old: int, new: int) -> tuple[Any, ...]:
    """A shape whose last axis has elements of ``new`` bits in place of ``old``."""
    return shape if old == new else (*shape[:-1], shape[-1] * old // new)


def _shown(shape: tuple[Any, ...]) -> str:
    return f"({', '.join(map(str, shape))})"
