"""Indices and slices of what has axes: one for each axis, checked, as expressions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from enum import Enum
from typing import TYPE_CHECKING, Any

from tilec.errors import SourceIndexError, SourceTypeError, SourceValueError
from tilec.language.tiles.memory.lane_stores import store_lanes
from tilec.language.values.kernel import session as sessions
from tilec.language.values.kernel.places import source_error
from tilec.language.values.operand_errors import FOR_A_WHOLE, several
from tilec.language.values.operands import expression, operand
from tilec.language.values.value import Value, Vector, are_several, is_number, resolve
from tilec.spelling import counted

if TYPE_CHECKING:
    from tvm.ir import Expr

#: More blocks or trips than any index is asked about.
_FAR = 1 << 20


class Indexed(ABC):
    """A buffer, or a slice of one. ``shape`` has ints, `Dim`s and expressions."""

    shape: tuple[Any, ...]

    @property
    @abstractmethod
    def name(self) -> str:
        """What errors call it."""

    @property
    def called(self) -> str:
        """What errors call it where its kind counts."""
        return f"buffer {self.name}"

    @abstractmethod
    def element(self, indices: tuple[Expr, ...]) -> Any:
        """One element."""

    @abstractmethod
    def region(self, starts: tuple[Expr, ...], extents: tuple[Any, ...], axes: tuple[int, ...]) -> Any:
        """A slice. ``axes``: those that were given a slice, which are its own."""

    def __getitem__(self, indices: Any) -> Any:
        items = self._items(indices)
        if any(isinstance(item, Vector) for item in items):
            return Vector(tuple(self[each] for each in _lane_indices(items)))
        if any(isinstance(item, slice) for item in items):
            return self.region(*self._box(items), _sliced(items))
        return self.element(tuple(self._index(item, axis) for axis, item in enumerate(items)))

    def __setitem__(self, indices: Any, value: Any) -> None:
        target = self[indices]
        if isinstance(target, Vector):
            _store_lanes(target, value)
            return
        if isinstance(target, Value) and isinstance(value, Indexed):
            raise source_error(
                SourceTypeError, f"an element of {self.name} cannot hold a tile", remedy="use T.copy"
            )
        target.store(value)

    def __iter__(self) -> Iterator[Any]:
        raise source_error(
            SourceTypeError,
            f"{self.called} cannot be iterated",
            remedy="loop with T.Parallel or T.serial",
        )

    def _items(self, indices: Any) -> tuple[Any, ...]:
        items = self._written_out(indices if isinstance(indices, tuple) else (indices,))
        if len(items) == len(self.shape):
            return items
        axes, given = counted(len(self.shape), "axis", "axes"), counted(len(items), "index", "indices")
        raise source_error(
            SourceIndexError,
            f"{self.name} has {axes}, got {given}",
            construct=self.name,
            why=f"its shape is {shown(self.shape)}",
            remedy=_for_an_index(None)
            if any(item is None for item in items)
            else "give one index or slice per axis",
        )

    def _written_out(self, items: tuple[Any, ...]) -> tuple[Any, ...]:
        """Items with whole axes in the place of an ellipsis."""
        at = next((at for at, item in enumerate(items) if item is ...), None)
        if at is None:
            return items
        whole = (slice(None),) * (len(self.shape) - len(items) + 1)
        return (*items[:at], *whole, *items[at + 1 :])

    def _index(self, item: Any, axis: int) -> Expr:
        """One index as an expression: negative constants count from the end, constants must be in range."""
        given = expr = self._integer(item, axis)
        if _is_negative(expr, self.name):
            expr = sessions.simplify(expr + expression(self.shape[axis]))
        self._check_range(expr, axis, given)
        return expr

    def _integer(self, item: Any, axis: int) -> Expr:
        value = resolve(item)
        whole = isinstance(value, Value) or (is_number(value) and not isinstance(value, (bool, float)))
        expr = expression(value) if whole else None
        if expr is not None and str(expr.ty.dtype).lstrip("u").startswith("int"):
            return expr
        if are_several(value):
            raise several(f"index {axis} of {self.name} is {len(value)} indices, not one", self.name)
        raise source_error(
            SourceTypeError,
            f"index {axis} of {self.name} is {_typed(value)}, not an integer",
            construct=self.name,
            remedy=_for_an_index(value),
        )

    def _check_range(self, expr: Expr, axis: int, given: Expr) -> None:
        from tilec.ir.exprs import variables_of

        index, extent = sessions.constant(expr), _known(self.shape[axis])
        if index is None or variables_of([given]) or (index >= 0 and (extent is None or index < extent)):
            return
        raise source_error(
            SourceIndexError,
            f"index {sessions.simplify(given)} is out of range for axis {axis} of {self.name}",
            construct=self.name,
            why=f"its shape is {shown(self.shape)}",
            remedy="stay within the shape; only indices known at run time alone may leave it",
        )

    def _box(self, items: tuple[Any, ...]) -> tuple[tuple[Expr, ...], tuple[Any, ...]]:
        spans = [self._span(item, axis) for axis, item in enumerate(items)]
        return tuple(start for start, _ in spans), tuple(extent for _, extent in spans)

    def _span(self, item: Any, axis: int) -> tuple[Expr, Any]:
        """Start and extent of one axis; a single index has extent 1."""
        if not isinstance(item, slice):
            return self._index(item, axis), 1
        if item.step not in (None, 1):
            raise source_error(
                SourceValueError,
                f"a slice of {self.name} has step {item.step!r}",
                remedy=f"index it in a T.Parallel loop: {self.name}[..., i * step]",
            )
        whole = self.shape[axis]
        start = expression(0) if item.start is None else self._index(item.start, axis)
        stop = self._stop(whole if item.stop is None else item.stop, axis)
        extent = sessions.known_or_expr(stop - start)
        if _most(extent, self.name) < 0:
            raise source_error(
                SourceValueError,
                f"a slice of {self.name} ends in front of where it begins",
                why=f"along axis {axis} it goes from {start} to {stop}",
                remedy="let it end behind its start; negative numbers count from the end of the axis",
            )
        return start, extent

    def _stop(self, item: Any, axis: int) -> Expr:
        expr = self._integer(item, axis)
        return expr + expression(self.shape[axis]) if _is_negative(expr, self.name) else expr


def _sliced(items: tuple[Any, ...]) -> tuple[int, ...]:
    return tuple(axis for axis, item in enumerate(items) if isinstance(item, slice))


def _most(extent: Any, construct: str) -> int:
    """The largest value of an extent."""
    if isinstance(extent, int):
        return extent
    return int(sessions.current(construct).analyzer.const_int_bound(extent).max_value)


def _is_negative(expr: Expr, construct: str) -> bool:
    """Whether an index is negative however many blocks and trips there are: in a grid of one block ``bx * 32
    - 3`` is what it is in any other."""
    from tvm import tirx
    from tvm.ir import Range

    from tilec.ir.exprs import dtype_of, substitute, variables_of

    analyzer = sessions.current(construct).analyzer
    if analyzer.const_int_bound(expr).max_value >= 0:
        return False
    free: dict[Any, Expr] = {}
    for var in variables_of([expr]):
        low = max(analyzer.const_int_bound(var).min_value, -_FAR)
        free[var] = made = tirx.Var(var.name, dtype_of(var))
        analyzer.bind(made, Range.from_min_extent(low, _FAR))
    return bool(analyzer.const_int_bound(substitute(expr, free)).max_value < 0)


def _lane_indices(items: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """One tuple of indices per lane."""
    count = max(len(item.lanes) for item in items if isinstance(item, Vector))
    return [
        tuple(item.lanes[lane] if isinstance(item, Vector) else item for item in items)
        for lane in range(count)
    ]


def _store_lanes(target: Vector, value: Any) -> None:
    """A vector, or a scalar in every lane, to places one after the other."""
    value = operand(value)
    values = value.lanes if isinstance(value, Vector) else (value,) * len(target.lanes)
    if len(values) != len(target.lanes):
        raise source_error(
            SourceValueError,
            f"a vector of {counted(len(values), 'lane')} is stored where {len(target.lanes)} fit",
            remedy="store as many lanes as the element has",
        )
    store_lanes(target.lanes, values)


def _for_an_index(value: Any) -> str:
    """What to write where ``value`` stands for an index and is none."""
    if isinstance(value, Value):
        return "cast it with T.cast(x, 'int32')"
    if isinstance(value, float):
        return FOR_A_WHOLE
    if isinstance(value, Enum):
        return "use its value, or let its class derive from enum.IntEnum"
    if value is None:
        return "T.reshape gives a buffer another shape; an index makes no axis"
    if isinstance(value, (Indexed, list)):
        return "index by elements in a T.Parallel loop: A[rows[i], j]"
    return "give an integer, a slice or `...`"


def _typed(value: Any) -> str:
    """A value with its dtype, where it has one."""
    return f"{value!r} of {value.dtype}" if isinstance(value, Value) else repr(value)


def _known(entry: Any) -> int | None:
    return int(entry) if isinstance(entry, int) else sessions.constant(expression(entry))


def shown(shape: tuple[Any, ...]) -> str:
    """A shape as Python writes it."""
    return f"({', '.join(map(str, shape))}{',' * (len(shape) == 1)})"
