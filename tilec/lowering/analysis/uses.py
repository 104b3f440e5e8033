"""Which buffers and expressions a statement names itself, without the blocks inside it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING

from tvm import sym
from tvm.ir import Expr
from tvm.tirx import is_buffer_var

from tilec.errors import CompileError
from tilec.ir.analysis.aliases import named
from tilec.ir.layout import Layout
from tilec.ir.nodes import Block, For, Launch, Loc, Region, Stmt, While, walk
from tilec.lowering.exprs import int_value, loads, substitute, uses

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tvm.ir import Var
    from tvm.sym import Analyzer

#: Values of fields that hold no expression of the statement itself.
_BARE = (Stmt, Layout, Loc, int, str, type(None))


def static(extent: int | Expr) -> int:
    """A build-time extent. CompileError where it is a run-time value, which tiles of products never have."""
    value = int_value(extent)
    if value is None:
        raise CompileError("a tile of a product has a run-time extent", why=str(extent))
    return value


def expressions(stmt: Stmt) -> Iterator[Expr]:
    """The scalar expressions among the fields of ``stmt``, those in regions included."""
    for name in _FIELDS[type(stmt)]:
        yield from _expressions(getattr(stmt, name))


def _expressions(value: object) -> Iterator[Expr]:
    sort = _SORTS[type(value)]
    if sort is Expr:
        if not is_buffer_var(value):
            yield value
    elif sort is tuple:
        for part in value:  # type: ignore[attr-defined]
            yield from _expressions(part)
    elif sort is not None:
        for name in _FIELDS[type(value)]:
            yield from _expressions(getattr(value, name))


# Asked for every field of every statement, the answers stay in tables by class.


class _Sorts(dict[type, "type | None"]):
    """What a value of a class holds: None for no expression, Expr for itself, tuple for a sequence of values,
    else its class: those in its fields."""

    def __missing__(self, kind: type) -> type | None:
        known = {_BARE: None, (Expr,): Expr, (tuple, list): tuple}
        self[kind] = next((sort for bases, sort in known.items() if issubclass(kind, bases)), kind)
        return self[kind]


class _Fields(dict[type, tuple[str, ...]]):
    """The names of a dataclass's fields; none for any other class."""

    def __missing__(self, kind: type) -> tuple[str, ...]:
        self[kind] = tuple(item.name for item in fields(kind)) if is_dataclass(kind) else ()
        return self[kind]


_SORTS, _FIELDS = _Sorts(), _Fields()


def regions(stmt: Stmt) -> Iterator[Region]:
    """The regions among the fields of ``stmt``; a field that views one has it as its ``region``."""
    for name in _FIELDS[type(stmt)]:
        value = getattr(stmt, name)
        region = value if isinstance(value, Region) else getattr(value, "region", None)
        if isinstance(region, Region):
            yield region


def buffers(stmt: Stmt) -> Iterator[Var]:
    """Every buffer that ``stmt`` names, as often as it does."""
    for region in regions(stmt):
        yield region.buffer
    if stmt.writes == ("buffer",):
        yield from written(stmt)
    for expr in expressions(stmt):
        yield from (load.source for load in loads(expr))


def written(stmt: Stmt) -> tuple[Var, ...]:
    """The buffers that ``stmt`` itself may write."""
    if stmt.writes is None:
        return tuple(buffers(stmt))
    targets = (getattr(stmt, name) for name in stmt.writes)
    return tuple(each.buffer if isinstance(each, Region) else each for each in targets)


def written_in(block: Block) -> set[Var]:
    """The buffers that a block may write."""
    return {buffer for stmt in walk(block) for buffer in written(stmt)}


def changed_in(launch: Launch) -> set[Var]:
    """The buffers that a launch may write, by their name or by that of a tensor that they may overlap."""
    return with_overlapping(written_in(launch.body), launch)


def overlapping(launch: Launch) -> frozenset[Var]:
    """The tensors that a launch uses and that may overlap each other."""
    every = {buffer for stmt in walk(launch.body) for buffer in buffers(stmt)}
    return frozenset(_global(every, named(launch)))


def with_overlapping(found: set[Var], launch: Launch) -> set[Var]:
    """``found``, and where a tensor in it may overlap others, these."""
    return found | overlapping(launch) if _global(found, named(launch)) else found


def reads_behind_writes(body: Block, names: frozenset[str]) -> bool:
    """Whether a block reads one of the tensors ``names`` behind a place that writes another of them."""
    changed: set[Var] = set()
    for stmt in walk(body):
        if isinstance(stmt, (For, While)) and _both(stmt.body, names):
            return True
        read = {load.source for expr in expressions(stmt) for load in loads(expr)}
        if any(source not in changed for source in _global(read, names)) and changed:
            return True
        changed |= _global(written(stmt), names)
    return False


def _both(body: Block, names: frozenset[str]) -> bool:
    """Whether a block touches several of the tensors ``names`` and writes one."""
    every = {buffer for stmt in walk(body) for buffer in buffers(stmt)}
    return len(_global(every, names)) > 1 and bool(_global(written_in(body), names))


def _global(found: Iterable[Var], names: frozenset[str]) -> set[Var]:
    return {buffer for buffer in found if buffer.scope() == "global" and str(buffer.name) in names}


def order_counts(launch: Launch) -> bool:
    """Whether a launch writes a tensor that may overlap another one that it uses: what its statements do to
    tensors has to stay in order, whichever tensors they name."""
    return _both(launch.body, named(launch))


def users(block: Block) -> dict[Var, list[Stmt]]:
    """The statements of a block, nested ones too, by the buffers that they name; allocations left out."""
    found: dict[Var, list[Stmt]] = {}
    for stmt in walk(block):
        for buffer in dict.fromkeys(buffers(stmt)):
            found.setdefault(buffer, []).append(stmt)
    return found


def moved(region: Region, values: Mapping[Var, Expr], analyzer: Analyzer) -> Region:
    """``region`` with variables replaced in its start."""
    return replace(
        region, start=tuple(analyzer.simplify(substitute(start, values)) for start in region.start)
    )


def depends(region: Region, var: Var) -> bool:
    """Whether the place of ``region`` varies with ``var``."""
    return any(uses(start, {var}) for start in region.start)


def steps_of(region: Region, var: Var, analyzer: Analyzer) -> dict[int, int] | None:
    """By axis, how far the start of ``region`` moves when ``var`` grows by one; axes that stay are left out.

    None where a start does not move by a constant."""
    steps = {}
    for axis, start in enumerate(region.start):
        if not uses(start, {var}):
            continue
        step = int_value(analyzer.simplify(substitute(start, {var: var + 1}) - start))
        if step is None:
            return None
        steps[axis] = step
    return steps


def stretched(region: Region, axis: int, extent: int | Expr) -> Region:
    """``region`` with another extent on ``axis``."""
    return replace(region, extent=(*region.extent[:axis], extent, *region.extent[axis + 1 :]))


def may_overlap(first: Region, second: Region) -> bool:
    """Whether two regions may have an element in common: they are of one buffer, and on no axis known to be
    apart."""
    if not first.buffer.same_as(second.buffer):
        return False
    analyzer = sym.Analyzer()
    for axis, start in enumerate(first.start):
        distance = int_value(analyzer.simplify(second.start[axis] - start))
        length, other = int_value(first.extent[axis]), int_value(second.extent[axis])
        if distance is None or length is None or other is None:
            continue
        if distance >= length or -distance >= other:
            return False
    return True
