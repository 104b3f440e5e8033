"""Loops that load tiles part by part, such as pages of a table, are one load of each tile.

for q in range(4): tile[q * 16 : q * 16 + 16, :] = K[pages[q], :, :]
->
for i, d in parallel(64, 128): tile[i, d] = K[pages[i // 16], i % 16, d]
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, TypeGuard

from tvm import tirx

from tilec.backends.cuda.analysis.accesses.gathers import only_store
from tilec.backends.cuda.warp_roles.ring import GROUP_ROWS
from tilec.ir.analysis.renaming import copied
from tilec.ir.exprs import dtype_of, inlined, int_value, linear_in, loads, uses
from tilec.ir.nodes import Bind, Block, Copy, For, Parallel, Pipelined, Stmt, Store, walk
from tilec.ir.traits import read
from tilec.lowering.analysis.accesses import values_of
from tilec.lowering.analysis.uses import written_in
from tilec.lowering.passes.base import BlockPass, rewrite_blocks
from tilec.lowering.passes.expand_copies import expand_copy
from tilec.lowering.rewrite import map_stmt, rename

if TYPE_CHECKING:
    from tvm.ir import Var


@dataclass(frozen=True)
class JoinParts(BlockPass):
    """In: loops of constant extent, each trip of which stores the next rows of a shared tile. Out: one loop
    over the rows of all trips, where a trip has fewer than a box, so that it leaves most threads idle, and in
    pipelines of two stages or more where it has any number: as one load it may run ahead. ``boxes``: copies
    of enough rows for boxes, which TMA may bring, stay."""

    boxes: bool = False

    def block(self, block: Block) -> list[Stmt]:
        """The block with its loops joined."""
        return [made for stmt in block for made in self._stmt(stmt)]

    def _stmt(self, stmt: Stmt) -> Block:
        if isinstance(stmt, For):
            return _joined(stmt, below=GROUP_ROWS)
        if not isinstance(stmt, Pipelined) or stmt.num_stages < 2:
            return (stmt,)
        return (replace(stmt, body=rewrite_blocks(stmt.body, self._of_pipeline)),)

    def _of_pipeline(self, block: Block) -> list[Stmt]:
        return [made for stmt in block for made in (_joined(stmt) if self._takes(stmt) else (stmt,))]

    def _takes(self, stmt: Stmt) -> TypeGuard[For]:
        return isinstance(stmt, For) and not (self.boxes and isinstance(stmt.body[-1], Copy))


def _joined(loop: For, below: float = inf) -> Block:
    """The rows of all trips as one loop for each tile; the loop where trips do something else than to store
    the next ones, or have not fewer of them than ``below``."""
    made = [_of_one_tile(each, below) for each in _by_tile(loop)]
    found = [each for each in made if each is not None]
    if not found or len(found) < len(made):
        return (loop,)
    return (found[0], *(own for each in found[1:] for own in copied((each,))))


def _by_tile(loop: For) -> list[For]:
    """A loop for each of the loads of a trip (keys and values of a page), where none reads what they
    write."""
    names = tuple(stmt for stmt in loop.body if isinstance(stmt, Bind))
    loads = [stmt for stmt in loop.body if not isinstance(stmt, Bind)]
    changed = written_in(loop.body)
    if any(buffer in changed for stmt in walk(loop.body) for buffer in read(stmt)):
        return [loop]
    return [replace(loop, body=(*names, load)) for load in loads]


def _of_one_tile(loop: For, below: float) -> Parallel | None:
    """The rows of all trips as one loop; None where it has none."""
    trips, part = int_value(loop.stop), _part(loop)
    if not trips or (int_value(loop.start), int_value(loop.step)) != (0, 1) or part is None:
        return None
    size, *inside = _factors(only_store(part), (loop.var, *part.vars)) or (0,)
    if size >= below:
        return None
    if size == 1 and not any(inside):
        return replace(part, vars=(loop.var, *part.vars), extents=(loop.stop, *part.extents))
    row = next((place for place, factor in enumerate(inside[:-1]) if factor == 1), None)
    if row is None or sum(map(bool, inside)) != 1 or int_value(part.extents[row]) != size:
        return None
    return _over_all(part, row, loop.var, trips)


def _factors(store: Store, variables: tuple[Var, ...]) -> list[int]:
    """The factors of ``variables``, then the rest, in the one index of a shared tile that the first of them
    moves; nothing where there is another one, or what is stored comes from that tile or from registers."""
    moved = [index for index in store.indices if uses(index, variables[:1])]
    sources = {load.source for expr in (*store.indices, store.value) for load in loads(expr)}
    held = store.buffer in sources or any(source.scope().startswith("local") for source in sources)
    if len(moved) != 1 or store.buffer.scope() != "shared.dyn" or held:
        return []
    factors = [int_value(factor) for factor in linear_in(moved[0], variables)]
    return [] if None in factors else [factor or 0 for factor in factors]


def _part(loop: For) -> Parallel | None:
    """What a trip does as a loop of one store, without names; None where it is something else."""
    *names, last = loop.body
    part = expand_copy(last) if isinstance(last, Copy) else last
    if not isinstance(part, Parallel):
        return None
    ahead = (*names, *part.body[:-1])
    values = values_of(ahead)
    if len(values) != len(ahead):
        return None
    store = map_stmt(part.body[-1], lambda expr: inlined(expr, values))
    return replace(part, body=(store,)) if isinstance(store, Store) else None


def _over_all(part: Parallel, row: int, trip: Var, trips: int) -> Parallel:
    """The loop of a part over the rows of all trips in place of its variable ``row``."""
    old, size = part.vars[row], int_value(part.extents[row]) or 1
    new, number = tirx.Var(str(old.name), dtype_of(old)), tirx.const(size, dtype_of(old))
    place = next(axis for axis, index in enumerate(only_store(part).indices) if uses(index, (trip,)))
    (store,) = rename(part.body, {trip: new // number, old: new % number})
    assert isinstance(store, Store)
    indices = (*store.indices[:place], new, *store.indices[place + 1 :])
    variables = (*part.vars[:row], new, *part.vars[row + 1 :])
    extents = (*part.extents[:row], tirx.const(trips * size, dtype_of(old)), *part.extents[row + 1 :])
    return replace(part, vars=variables, extents=extents, body=(replace(store, indices=indices),))
