"""Factors that a trip puts on chip for its sums are read where they come from.

s[i] = x[i, k] * y[k]; P = A B; C += P * s[i]    ->    P = A B; C += P * (x[i, k] * y[k])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import TensorLoad
from tvm.tirx.analysis import undefined_vars

from tilec.backends.cuda.idioms.tiles.forward_passages import Reader
from tilec.backends.cuda.idioms.writings import Writing, writings
from tilec.ir.analysis.aliases import named
from tilec.ir.exprs import inlined, loads, same_all
from tilec.ir.nodes import (
    Alloc,
    Bind,
    Block,
    For,
    Gemm,
    Launch,
    Parallel,
    Pipelined,
    Stmt,
    Store,
    children,
    walk,
    with_children,
)
from tilec.ir.traits import buffers, mentioned
from tilec.lowering.analysis.roads import with_notes
from tilec.lowering.analysis.uses import touches, written_in
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks
from tilec.lowering.rewrite import map_stmt

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

_NOTE = "{} has factors of sums alone: they are read where they come from"


class ForwardFactors(LaunchPass):
    """In: a loop whose trips fill a tile of one axis from tensors, multiply, and add the sums of the trip,
    times elements of that tile, to others; nothing else uses the tile. Out: the loop that adds reads the
    tensors, also what names of the trip were read from."""

    def launch(self, launch: Launch) -> Launch:
        """The launch without such tiles; one whose tensors may overlap as it is."""
        if named(launch) or launch.thread_vars:
            return launch
        passed: list[str] = []

        def rewrite(block: Block) -> list[Stmt]:
            return [
                _Trip.of(stmt, launch).without(stmt, passed) if _is_loop(stmt) else stmt for stmt in block
            ]

        body = rewrite_blocks(launch.body, rewrite)
        return with_notes(replace(launch, body=body), map(_NOTE.format, passed)) if passed else launch


def _is_loop(stmt: Stmt) -> bool:
    plain = isinstance(stmt, For) or (
        isinstance(stmt, Pipelined) and (stmt.stage, stmt.order) == (None, None)
    )
    return plain and any(isinstance(inner, Gemm) for inner in children(stmt)[0])


@dataclass(frozen=True)
class _Trip:
    """What a loop's trip adds to. ``sums``: what its products write, ``elsewhere``: the buffers that
    statements outside of the loop use, ``changed``: those that the launch writes."""

    sums: Set[Var]
    elsewhere: Set[Var]
    changed: Set[Var]

    @classmethod
    def of(cls, loop: Stmt, launch: Launch) -> _Trip:
        """Of a loop of a launch."""
        inside = set(walk((loop,)))
        others = (stmt for stmt in walk(launch.body) if stmt not in inside and not isinstance(stmt, Alloc))
        sums = {stmt.c.buffer for stmt in inside if isinstance(stmt, Gemm)}
        return cls(sums, {buffer for stmt in others for buffer in buffers(stmt)}, written_in(launch.body))

    def without(self, loop: Stmt, passed: list[str]) -> Stmt:
        """The loop without the tiles of its factors, whose names go to ``passed``."""
        (body,) = children(loop)
        names = {
            stmt.var: stmt.value for stmt in body if isinstance(stmt, Bind) and self._is_steady(stmt.value)
        }
        for place, stmt in enumerate(body):
            adding = next((each for each in body[place:] if _adds(each, self.sums)), None)
            for writing in writings(stmt) if adding is not None else ():
                assert isinstance(adding, Parallel)
                made = self._read(writing, adding) if self._is_own(writing, adding, body) else None
                if made is not None:
                    passed.append(str(writing.tile.name))
                    made = map_stmt(made, lambda expr: inlined(expr, names))
                    left = [made if each is adding else each for each in body if each is not stmt]
                    return self.without(with_children(loop, [_without_idle(left, names)]), passed)
        return loop

    def _is_steady(self, value: Expr) -> bool:
        """Whether a value is read from tensors that do not change, and from nothing else."""
        sources = {load.source for load in loads(value)}
        return bool(sources) and not any(
            source in self.changed or source.scope() != "global" for source in sources
        )

    def _is_own(self, writing: Writing, reader: Stmt, body: Block) -> bool:
        """Whether a tile of one axis holds what tensors say, for one reader."""
        tile = writing.tile
        users = [stmt for stmt in body if touches(stmt, tile)]
        alone = tile not in self.elsewhere and len(users) == 2 and users[1] is reader and not writing.rest
        return alone and len(tile.shape) == 1 and self._is_steady(writing.value)

    def _read(self, writing: Writing, reader: Parallel) -> Stmt | None:
        return Reader(reader, writing, again=True).rewritten()


def _adds(stmt: Stmt, sums: Set[Var]) -> bool:
    """Whether a loop adds something of ``sums`` to each element of another fragment."""
    store = stmt.body[-1] if isinstance(stmt, Parallel) else None
    if not isinstance(store, Store) or not isinstance(store.value, tirx.Add):
        return False
    own = (
        isinstance(part, TensorLoad)
        and part.source.same_as(store.buffer)
        and same_all(tuple(part.indices), store.indices)
        for part in (store.value.a, store.value.b)
    )
    return any(own) and any(load.source in sums for load in loads(store.value))


def _without_idle(block: Sequence[Stmt], names: Mapping[Var, Expr]) -> Block:
    """A block without those of ``names`` that it does not use."""
    used = {var for stmt in walk(tuple(block)) if not isinstance(stmt, Bind) for var in mentioned(stmt)}
    used |= {var for stmt in block if isinstance(stmt, Bind) for var in undefined_vars(stmt.value)}
    return tuple(
        stmt for stmt in block if not isinstance(stmt, Bind) or stmt.var not in names or stmt.var in used
    )
