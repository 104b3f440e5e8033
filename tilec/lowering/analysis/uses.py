"""Which buffers and expressions a statement names itself, without the blocks inside it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tilec.ir.analysis.aliases import named
from tilec.ir.foreign import addressed
from tilec.ir.nodes import Alloc, Block, For, Launch, Stmt, Store, While, walk
from tilec.ir.stmt import kept
from tilec.ir.traits import buffers, expressions, loads_of, written

if TYPE_CHECKING:
    from tvm.ir import Var


def used_in(block: Block) -> set[Var]:
    """The buffers that a block names."""
    return {buffer for stmt in walk(block) for buffer in buffers(stmt)}


def written_in(block: Block) -> set[Var]:
    """The buffers that a block may write."""
    return {buffer for stmt in walk(block) for buffer in written(stmt)}


def sets_variable(stmt: Stmt) -> bool:
    """Whether a statement sets a variable of a thread."""
    return isinstance(stmt, Store) and str(stmt.buffer.scope()) == "local.var"


def changed_in(launch: Launch) -> set[Var]:
    """The buffers that a launch may write, by their name or by that of a tensor that they may overlap."""
    return with_overlapping(written_in(launch.body), launch)


def overlapping(launch: Launch) -> frozenset[Var]:
    """The tensors that a launch uses and that may overlap each other."""
    return frozenset(_global(used_in(launch.body), named(launch)))


def with_overlapping(found: set[Var], launch: Launch) -> set[Var]:
    """``found``, and where a tensor in it may overlap others, these."""
    return found | overlapping(launch) if _global(found, named(launch)) else found


def reads_behind_writes(body: Block, names: frozenset[str]) -> bool:
    """Whether a block reads one of the tensors ``names`` behind a place that writes another of them."""
    changed: set[Var] = set()
    for stmt in walk(body):
        if isinstance(stmt, (For, While)) and _both(stmt.body, names):
            return True
        read = {load.source for load in loads_of(stmt)}
        if any(source not in changed for source in _global(read, names)) and changed:
            return True
        changed |= _global(written(stmt), names)
    return False


def _both(body: Block, names: frozenset[str]) -> bool:
    """Whether a block touches several of the tensors ``names`` and writes one."""
    return len(_global(used_in(body), names)) > 1 and bool(_global(written_in(body), names))


def _global(found: Iterable[Var], names: frozenset[str]) -> set[Var]:
    return {buffer for buffer in found if buffer.scope() == "global" and str(buffer.name) in names}


def order_counts(launch: Launch) -> bool:
    """Whether a launch writes a tensor that may overlap another one that it uses: what its statements do to
    tensors has to stay in order, whichever tensors they name."""
    return _both(launch.body, named(launch))


def addressed_in(block: Block) -> set[Var]:
    """The buffers whose address foreign code gets."""
    return {buffer for stmt in walk(block) for buffer in _addressed(stmt)}


@kept
def _addressed(stmt: Stmt) -> frozenset[Var]:
    return frozenset(buffer for expr in expressions(stmt) for buffer in addressed(expr))


def touches(stmt: Stmt, buffer: Var) -> bool:
    """Whether a statement or one inside names ``buffer``."""
    return any(buffer.same_as(name) for inner in walk((stmt,)) for name in buffers(inner))


def uses_itself(stmt: Stmt, buffer: Var) -> bool:
    """Whether a statement that is no allocation names ``buffer``, blocks inside it left out."""
    return not isinstance(stmt, Alloc) and any(buffer.same_as(name) for name in buffers(stmt))


def count_uses(block: Block, buffer: Var) -> int:
    """How many statements of a block, nested ones too, name ``buffer``; allocations left out."""
    return sum(uses_itself(stmt, buffer) for stmt in walk(block))


def users(block: Block) -> dict[Var, list[Stmt]]:
    """The statements of a block, nested ones too, by the buffers that they name; allocations left out."""
    found: dict[Var, list[Stmt]] = {}
    for stmt in walk(block):
        for buffer in dict.fromkeys(buffers(stmt)):
            found.setdefault(buffer, []).append(stmt)
    return found
