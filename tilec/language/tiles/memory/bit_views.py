"""Views of a buffer's bits under another dtype: an element is a part of one of the buffer's, or several."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

from tilec.ir import nodes as ir
from tilec.language.tiles.memory.buffers import Buffer, Element
from tilec.language.tiles.memory.views import View, ViewElement
from tilec.language.values.kernel import session as sessions
from tilec.language.values.kernel.places import loc, unsupported
from tilec.language.values.operands import expression, stored_value
from tilec.language.values.scalars import dtype as make_dtype
from tilec.language.values.value import Value

if TYPE_CHECKING:
    from tvm.ir import Expr


class Retyped(View):
    """``root``'s bits in row-major order as elements of ``kind``, the least significant byte first. Bits that
    a 16-bit float takes for a signalling NaN come out as a quiet one."""

    def __init__(self, root: Buffer, shape: tuple[Any, ...], kind: make_dtype) -> None:
        super().__init__(root, shape)
        self.dtype = kind
        bits = {each.bits for each in (kind, root.dtype)}
        if "bool" in (str(kind), str(root.dtype)) or any(width % 8 for width in bits):
            raise unsupported(
                f"a view of {root.dtype} memory as {kind}", remedy="view whole bytes: uint8, float16, int32"
            )

    def element(self, indices: tuple[Expr, ...]) -> Element:
        """One element."""
        return _RetypedElement(self, indices)


class _RetypedElement(ViewElement):
    """An element of another width than the root's: read and written by shifts of the root's bits."""

    __slots__ = ("_first", "_shift")

    is_plain = False

    def __init__(self, view: Retyped, indices: tuple[Expr, ...]) -> None:
        wide, narrow = view.dtype.bits, view.root.dtype.bits
        linear = view.linear(indices)
        many = max(1, narrow // wide)
        self._shift = linear % expression(many) * expression(wide) if many > 1 else None
        self._first = linear * expression(max(1, wide // narrow)) // expression(many)
        super().__init__(view, indices, view.unravelled(self._first), view.open_bounds(indices))

    @property
    def dtype(self) -> Any:
        """The view's."""
        return self.place[0].dtype

    def _parts(self) -> list[Element]:
        """The elements of the root that hold the bits, the lowest first."""
        view = self.place[0]
        assert isinstance(view, Retyped)
        count = max(1, view.dtype.bits // view.root.dtype.bits)
        return [view.root.element(view.unravelled(self._first + expression(step))) for step in range(count)]

    @property
    def expr(self) -> Expr:
        """The bits together, or the part of them."""
        from tvm import tirx

        parts = [_bits(part.expr) for part in self._parts()]
        size, width = parts[0][1], self.dtype.bits
        if self._shift is None:
            wide = [tirx.Cast(f"uint{width}", part) << tirx.const(at * size, f"uint{width}") if at else
                    tirx.Cast(f"uint{width}", part) for at, (part, _) in enumerate(parts)]  # fmt: skip
            found = reduce(tirx.bitwise_or, wide)
        else:
            shifted = parts[0][0] >> tirx.Cast(f"uint{size}", self._shift)
            found = tirx.Cast(f"uint{width}", shifted)
        return self.guarded(_from_bits(found, str(self.dtype)))

    def store(self, value: Any) -> None:
        """Write the bits; those of the same element of the root that are not the view's stay."""
        from tvm import tirx

        from tilec.ir.exprs import loads

        what = f"a store to {self.buffer.name}"
        new, width = _bits(stored_value(value, self.dtype, what))
        builder, parts = sessions.builder(what), self._parts()
        frame = builder.push("if") if self.guard is not None else None
        if len(parts) > 1 and next(loads(new), None) is not None:  # the first part may be what the rest reads
            new = builder.bind("bits", Value(new)).expr
        for at, part in enumerate(parts):
            old, size = _bits(part.expr)
            kind = f"uint{size}"
            if self._shift is None:
                bits = tirx.Cast(kind, new >> tirx.const(at * size, f"uint{width}"))
            else:
                shift = tirx.Cast(kind, self._shift)
                mask = tirx.const((1 << width) - 1, kind) << shift
                bits = (old & tirx.bitwise_not(mask)) | (tirx.Cast(kind, new) << shift)
            made = _from_bits(bits, str(part.buffer.dtype))
            builder.emit(ir.Store(part.buffer.var, part.indices, made, loc=loc()), what)
        if frame is not None:
            builder.emit(ir.If(self.guard, builder.pop(frame), loc=loc()), what)


def _bits(value: Expr) -> tuple[Expr, int]:
    """A value's bits as an unsigned integer, and how many they are."""
    from tvm import tirx

    kind = make_dtype(str(value.ty.dtype))
    name = f"uint{kind.bits}"
    return (value if str(kind) == name else tirx.reinterpret(name, value)), kind.bits


def _from_bits(bits: Expr, dtype: str) -> Expr:
    from tvm import tirx

    return bits if str(bits.ty.dtype) == dtype else tirx.reinterpret(dtype, bits)
