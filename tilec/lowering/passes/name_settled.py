"""What threads keep in memory of their own has a name where nothing changes it any more.

    first[0] = 1 << 30                            first[0] = 1 << 30
    for i: first[0] = min(first[0], begin[i])     for i: first[0] = min(first[0], begin[i])
    for n: ... X[first[0] + n] ...          ->    settled = first[0]
                                                  for n: ... X[settled + n] ...

A name tells a pass that all trips mean the same place.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import Var

from tilec.ir.exprs import int32
from tilec.ir.nodes import Bind, Block, For, Launch, Pipelined, Stmt, Store, While, every_block, walk
from tilec.lowering.passes.base import LaunchPass
from tilec.lowering.passes.name_variables import NamedMemory, first_loads, plain_memory

if TYPE_CHECKING:
    from collections.abc import Iterable


_LOOPS = (For, Pipelined, While)


class NameSettled(LaunchPass):
    """In: memory of threads. Out: integers and bools that a block stores, and that loops behind the last such
    statement read, have names in these."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with such names."""
        found = _settled(launch.body)
        return replace(launch, body=_Names(found).block(launch.body)) if found else launch


def _settled(body: Block) -> dict[Stmt, list[Var]]:
    """The last statements of blocks that store some memory, and that memory, where loops behind read it."""
    plain = plain_memory(body)
    found: dict[Stmt, list[Var]] = {}
    for block in every_block(body) if plain else ():
        for buffer in plain:
            stores = [place for place, stmt in enumerate(block) if _stores(stmt, buffer)]
            if stores and _is_read(block[stores[-1] + 1 :], buffer):
                found.setdefault(block[stores[-1]], []).append(buffer)
    return found


def _stores(stmt: Stmt, buffer: Var) -> bool:
    return any(isinstance(inner, Store) and inner.buffer.same_as(buffer) for inner in walk((stmt,)))


def _is_read(block: Block, buffer: Var) -> bool:
    """Whether loops of a block read memory."""
    inside = (inner for stmt in block if isinstance(stmt, _LOOPS) for inner in walk((stmt,)))
    return any(load.source.same_as(buffer) for load in first_loads(inside))


class _Names(NamedMemory):
    """Rewrites blocks with names behind the statements that are ``found``."""

    def __init__(self, found: dict[Stmt, list[Var]]) -> None:
        super().__init__()
        self._found = found

    def block(self, block: Iterable[Stmt]) -> Block:
        """A block, in which names hold to its end."""
        before = self.names
        made: list[Stmt] = []
        for stmt in block:
            made += self.stmts(stmt)
            for buffer in self._found.get(stmt, ()):
                name = tirx.Var(f"{buffer.name}_settled", str(buffer.dtype))
                made.append(Bind(name, tirx.BufferLoad(buffer, [int32(0)]), loc=stmt.loc))
                self.names = {**self.names, buffer: name}
        self.names = before
        return tuple(made)
