"""Which cache lines of a row the loops of a trip have asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING

from tvm import sym, tirx

from tilec.backends.cpu.products.tir import CACHE_LINE
from tilec.ir.exprs import dtype_of, int_value, same, substitute
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.ir.nodes import Parallel
    from tilec.lowering.analysis.accesses import Access

#: Lanes of a loop whose places are looked at one by one.
_MOST_LANES = 64


@dataclass(eq=False)
class AskedLines:
    """What Parallels that run one behind the other ask for. Another one need not ask for what lies behind the
    start of a prefetch by less than a line: the next start, of that trip or of the one that follows, asks for
    the line in which it ends."""

    items: list[_Places] = field(default_factory=list)
    #: Those whose lines several of the loops read.
    shared: set[Access] = field(default_factory=set)

    def leaves(self, item: Access, work: Parallel) -> bool:
        """Whether some lane of ``work`` reads ``item`` where nothing has been asked for; it then is."""
        found = _places_of(item, work)
        if found is None:
            return True
        asked = [(start, other.item) for other in self.items for start in found.starts_of(other)]
        owners = [[item for start, item in asked if 0 <= at - start < CACHE_LINE] for at in found.places]
        if all(owners):
            self.shared.update(*owners)
            return False
        self.items.append(found)
        return True


@dataclass(frozen=True, eq=False)
class _Places:
    """Bytes from ``first``, an element of a row, to that of each lane."""

    item: Access
    first: Expr
    places: tuple[int, ...]

    def starts_of(self, other: _Places) -> range:
        """Where the prefetches of another one begin, in bytes from the own first element."""
        ours, theirs = self.item, other.item
        if not ours.buffer.same_as(theirs.buffer) or not same(ours.indices[0], theirs.indices[0]):
            return range(0)
        apart = int_value(sym.Analyzer().simplify(other.first - self.first))
        if apart is None or max(other.places) == 0:
            return range(0)
        start = apart * element_bytes(str(ours.buffer.dtype))
        return range(start, start + max(other.places) + 1, CACHE_LINE)


def _places_of(item: Access, work: Parallel) -> _Places | None:
    """The places of the lanes of a loop; None where they are not known."""
    count = int_value(work.extents[0]) if len(work.vars) == 1 else None
    sizes = [int_value(size) for size in item.buffer.shape[2:]]
    if count is None or count > _MOST_LANES or None in sizes or item.buffer.strides:
        return None
    if len(item.indices) < 2:  # all of the tensor is one row
        return None
    column = _column(item, [size for size in sizes if size is not None])
    (var,) = work.vars
    lanes = [substitute(column, {var: tirx.const(at, dtype_of(var))}) for at in range(count)]
    analyzer = sym.Analyzer()
    apart = [int_value(analyzer.simplify(lane - lanes[0])) for lane in lanes]
    size = element_bytes(str(item.buffer.dtype))
    places = tuple(at * size for at in apart if at is not None)
    return _Places(item, lanes[0], places) if len(places) == len(lanes) else None


def _column(item: Access, sizes: list[int]) -> Expr:
    """How many elements of its row lie in front of an element; ``sizes`` are the tensor's behind the second
    axis."""
    parts = (index * prod(sizes[axis:]) for axis, index in enumerate(item.indices[1:]))
    return sum(parts, tirx.const(0, dtype_of(item.indices[1])))
