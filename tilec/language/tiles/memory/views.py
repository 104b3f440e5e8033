"""Views: other shapes for the memory of a buffer.

A view has no memory and no name in the tile IR: each of its elements is one of the buffer's. Tile operations
on views that read or write elements become loops; products need a buffer of their own.
"""

from __future__ import annotations

from functools import reduce
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from tilec.ir import nodes as ir
from tilec.language.tiles.memory.boxes import same
from tilec.language.tiles.memory.buffers import Buffer, Element
from tilec.language.values.kernel import session as sessions
from tilec.language.values.kernel.places import loc, unsupported
from tilec.language.values.operands import expression

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
        return ViewElement(self, indices, self.root_indices(indices), self.open_bounds(indices))

    def linear(self, indices: tuple[Expr, ...]) -> Expr:
        """The number, in row-major order, of an element; with the first indices alone that of a row."""
        first, *others = indices or (expression(0),)
        axes = zip(map(expression, self.shape[1:]), others, strict=False)
        return reduce(lambda so_far, axis: so_far * axis[0] + axis[1], axes, first)

    def root_indices(self, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Those of the same element. The last axes that both have keep theirs, whatever their bounds."""
        kept = self._common_axes()
        lead, rows = len(indices) - kept, self.root.shape[: len(self.root.shape) - kept]
        return (*_unravelled(self.linear(indices[:lead]), rows), *indices[lead:])

    def _common_axes(self) -> int:
        """How many last axes have the extent that the root's have; each side keeps one in front of them."""
        pairs = zip(reversed(self.shape[1:]), reversed(self.root.shape[1:]), strict=False)
        return sum(1 for _ in takewhile(lambda pair: same(*pair), pairs))

    def unravelled(self, linear: Expr) -> tuple[Expr, ...]:
        """The root's indices of its element of a number."""
        return _unravelled(linear, self.root.shape)


class ViewElement(Element):
    """An element of a view, at ``places`` of the root, where ``guard`` holds (None: everywhere)."""

    __slots__ = ("_place", "guard")

    def __init__(
        self, view: View, indices: tuple[Expr, ...], places: tuple[Expr, ...], guard: Expr | None
    ) -> None:
        super().__init__(view.root, places)
        self._place = view, indices
        self.guard = guard

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


def _unravelled(linear: Expr, shape: tuple[Any, ...]) -> tuple[Expr, ...]:
    """The indices of an element by its number in row-major order; a first one has no end."""
    found: list[Expr] = []
    for extent in reversed(shape[1:]):
        found.insert(0, sessions.simplify(linear % expression(extent)))
        linear = linear // expression(extent)
    return (sessions.simplify(linear), *found) if shape else ()
