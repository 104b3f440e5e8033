"""Tiles that values only pass through: what is read of them is read where it came from.

    copy(acc, Cs); for i, j: C[i, j] = Cs[i, j]    ->    for i, j: C[i, j] = acc[i, j]

Strategies know how results leave an accumulator; a detour by a tile of the author's hides it from them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import ir as tvm_ir
from tvm import sym, tirx
from tvm.ir import TensorLoad

from tilec.backends.cuda.idioms.writings import Writing, writings
from tilec.ir.analysis.aliases import named
from tilec.ir.exprs import cast_to, dtype_of, int_value, same_all, substitute, transform
from tilec.ir.nodes import (
    LOOPS,
    Block,
    Copy,
    Gemm,
    If,
    Launch,
    Parallel,
    Stmt,
    Store,
    children,
    is_global,
    with_children,
)
from tilec.ir.nodes import walk as walk_statements
from tilec.ir.traits import buffers, loads_of
from tilec.lowering.analysis.flow import is_read_next, overwrites, reads
from tilec.lowering.analysis.roads import with_notes
from tilec.lowering.analysis.uses import touches, written_in
from tilec.lowering.passes.base import LaunchPass
from tilec.lowering.passes.expand_copies import expand_copy
from tilec.lowering.rewrite import map_stmt

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

_NOTE = "{} is only passed through: what is read of it comes from where it was written from"


class ForwardPassages(LaunchPass):
    """In: a loop or a copy that writes a tile, and loops or copies behind it in the same block that read it
    there: results staged in shared memory by their author, a residual or a bias that is copied on chip first.
    Out: the readers compute what the tile would have held, conversions to its type included, and the writer
    is gone, where nobody else sees what it wrote and nothing that it read changes in between. A tile that is
    used for something else before or behind (Q's for the output) keeps that."""

    def launch(self, launch: Launch) -> Launch:
        """The launch without passages; one whose tensors may overlap as it is."""
        if named(launch) or launch.thread_vars:
            return launch
        rewrite = _Forwarding()
        body = rewrite.block(launch.body, ())
        if not rewrite.passed:
            return launch
        return with_notes(replace(launch, body=body), [_NOTE.format(tile) for tile in rewrite.passed])


class _Forwarding:
    """Rewrites blocks; ``passed`` are the names of tiles whose writers are gone."""

    def __init__(self) -> None:
        self.passed: list[str] = []

    def block(self, block: Block, after: Block) -> Block:
        """The rewritten statements; ``after`` is what runs behind the block, as far as it may see tiles."""
        stmts = list(block)
        place = 0
        while place < len(stmts):
            made = self._passed(stmts, place, after)
            if made is not None:
                stmts[place:] = made
                continue
            stmts[place] = self._inside(stmts[place], (*stmts[place + 1 :], *after))
            place += 1
        return tuple(stmts)

    def _inside(self, stmt: Stmt, after: Block) -> Stmt:
        if isinstance(stmt, Parallel) or not children(stmt):
            return stmt
        again = stmt.body if isinstance(stmt, LOOPS) else ()
        return with_children(stmt, [self.block(inner, (*again, *after)) for inner in children(stmt)])

    def _passed(self, stmts: list[Stmt], place: int, after: Block) -> list[Stmt] | None:
        """The statements from ``place`` on without the passage that starts there; None where none does."""
        for writing in writings(stmts[place]):
            if writing.tile.scope() != "shared.dyn" and not (writing.is_plain or writing.turns):
                continue
            made = _forwarded(writing, tuple(stmts[place + 1 :]), after)
            multiplies = any(isinstance(stmt, Gemm) for stmt in stmts)
            if made is None or (multiplies and _brings(writing)):
                continue
            self.passed.append(str(writing.tile.name))
            return [*writing.rest, *made]
        return None


def _brings(writing: Writing) -> bool:
    """Whether a tile is filled from a tensor: beside products that is a load ahead of its use."""
    return any(is_global(source) for source in writing.sources)


# ---- readers ----


def _forwarded(writing: Writing, behind: Block, after: Block) -> Block | None:
    """The statements behind a writer that read its value instead of its tile; None where one of them needs
    the tile, or what the value is made of has changed, or where none reads the tile."""
    end = next((place for place, stmt in enumerate(behind) if overwrites(stmt, writing.tile)), len(behind))
    made = _reading(behind[:end], writing)
    if made is None or not any(reads(stmt, writing.tile) for stmt in behind[:end]):
        return None
    seen = end == len(behind) and is_read_next(after, writing.tile)
    return None if seen else (*made, *behind[end:])


def _reading(block: Block, writing: Writing) -> Block | None:
    """Statements that read the value of a writer instead of its tile; None where one cannot."""
    made: list[Stmt] = []
    changed = False
    for stmt in block:
        new = _reader(stmt, writing) if touches(stmt, writing.tile) else stmt
        if new is None or (changed and new is not stmt):
            return None
        made.append(new)
        changed = changed or bool(writing.sources & written_in((stmt,)))
    return tuple(made)


def _reader(stmt: Stmt, writing: Writing) -> Stmt | None:
    """The same of one statement that names the tile."""
    if isinstance(stmt, If) and writing.tile not in set(buffers(stmt)):
        blocks = [made for inner in children(stmt) if (made := _reading(inner, writing)) is not None]
        return with_children(stmt, blocks) if len(blocks) == len(children(stmt)) else None
    loop = expand_copy(stmt) if isinstance(stmt, Copy) else stmt
    if not isinstance(loop, Parallel) or writing.tile in written_in((loop,)):
        return None
    return Reader(loop, writing).rewritten()


class Reader:
    """One loop that reads a tile. ``again``: it may compute what it reads more than once."""

    def __init__(self, loop: Parallel, writing: Writing, again: bool = False) -> None:
        self._loop, self._writing = loop, writing
        self._fits = again or writing.is_plain or len(loop.vars) == writing.rank
        self._analyzer = sym.Analyzer()
        for var, extent in zip(loop.vars, loop.extents, strict=True):
            size = int_value(extent)
            if size is None:
                self._fits = False
                continue
            self._analyzer.bind(
                var, tvm_ir.Range(tirx.const(0, dtype_of(var)), tirx.const(size, dtype_of(var)))
            )

    def rewritten(self) -> Stmt | None:
        """The loop over the value; None where it reads what the writer has not written, or writes what the
        value is read from elsewhere than there."""
        made = map_stmt(self._loop, lambda expr: transform(expr, self._visit)) if self._fits else None
        return made if made is not None and self._fits and self._in_place(made) else None

    def _visit(self, node: Expr) -> Expr | None:
        if not isinstance(node, TensorLoad) or not node.source.same_as(self._writing.tile):
            return None
        values: dict[Var, Expr] = {}
        for index, (var, start, extent) in zip(node.indices, self._writing.axes, strict=True):
            own = self._analyzer.simplify(index - tirx.const(start, dtype_of(index)))
            bound = self._analyzer.const_int_bound(own)
            if bound.min_value < 0 or bound.max_value >= extent:
                self._fits = False
                return None
            if var is not None:
                values[var] = cast_to(own, dtype_of(var))
        return substitute(self._writing.value, values)

    def _in_place(self, made: Stmt) -> bool:
        """Whether what the loop writes of the value's sources is the element that it reads."""
        stores = [stmt for stmt in walk_statements((made,)) if isinstance(stmt, Store)]
        shared = self._writing.sources & written_in((made,))
        if not shared:
            return True
        every = list(loads_of(*walk_statements((made,))))
        alone = len(stores) == 1 and stores[0].buffer in shared
        return alone and all(
            same_all(tuple(load.indices), stores[0].indices)
            for load in every
            if load.source.same_as(stores[0].buffer)
        )
