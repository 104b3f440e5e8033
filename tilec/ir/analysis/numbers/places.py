"""Which numbers of a kernel lead to places: to indices of buffers, bounds of loops, extents and grids.

To the author these are whole numbers, whatever their type; other data wraps around at the ends of it. So does
what memory holds, wherever it leads: a table may have the ends of its type for places that there are not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tvm import tirx
from tvm.ir import Expr, TensorLoad, Var

from tilec.ir import nodes as ir
from tilec.ir.exprs import loads, walk
from tilec.ir.nodes.threads import PER_THREAD
from tilec.ir.stmt import kept, own
from tilec.ir.traits import defined, expressions, read, written

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: Fields of statements that are indices.
INDICES = frozenset({"indices", "start", "stop", "step", "extent", "extents", "index", "grid"})


def leading(body: ir.Block) -> frozenset[Var]:
    """The variables, and the buffers whose elements, lead to places: through other names and tiles, too."""
    flows = _flows(body)
    found: set[Var] = set().union(*(flow.places for flow in flows))
    more = True
    while more:
        more = False
        for flow in reversed(flows):
            if not flow.targets.isdisjoint(found) and not flow.sources <= found:
                found |= flow.sources
                more = True
    return frozenset(found)


def of_memory(body: ir.Block) -> frozenset[Var]:
    """Buffers that threads share, and what gets values of their elements: names, and arrays of threads."""
    flows = _flows(body)
    every: set[Var] = set().union(*(flow.sources | flow.targets for flow in flows))
    found = {name for name in every if tirx.is_buffer_var(name) and name.scope() not in PER_THREAD}
    more = True
    while more:
        more = False
        for flow in flows:
            if not flow.sources.isdisjoint(found) and not flow.targets <= found:
                found |= flow.targets
                more = True
    return frozenset(found)


def _flows(body: ir.Block) -> list[_Flow]:
    return [_flow(stmt) for stmt in ir.walk(body)]


class _Flow(NamedTuple):
    """The names in the ``places`` of a statement, those that it gives values, and those that these are of."""

    places: frozenset[Var]
    targets: frozenset[Var]
    sources: frozenset[Var]


@kept
def _flow(stmt: ir.Stmt) -> _Flow:
    targets = (*written(stmt), *(defined(stmt) if isinstance(stmt, (ir.Bind, ir.Alloc)) else ()))
    sources = (*_names(expressions(stmt)), *read(stmt))
    return _Flow(frozenset(_names(places_in(stmt))), frozenset(targets), frozenset(sources))


def places_in(value: Any, is_index: bool = False) -> Iterator[Expr]:
    """The indices that a statement, or a part of one, itself has; ``is_index``: what a part is itself."""
    if isinstance(value, Expr):
        if not tirx.is_buffer_var(value):
            yield from (value,) if is_index else ()
            yield from (index for load in loads(value) for index in load.indices)
    elif isinstance(value, tuple):
        yield from (found for part in value for found in places_in(part, is_index))
    elif isinstance(value, (ir.Stmt, ir.Region)):
        for item in own(type(value)):
            yield from places_in(getattr(value, item.name), item.name in INDICES)


def _names(exprs: Iterable[Expr]) -> Iterator[Var]:
    """Variables, and buffers of elements."""
    for expr in exprs:
        for node in walk(expr):
            if isinstance(node, Var):
                yield node
            elif isinstance(node, TensorLoad):
                yield node.source
