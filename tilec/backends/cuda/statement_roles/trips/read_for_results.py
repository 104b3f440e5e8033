"""What loops over results read for whole rows or columns comes to registers in front of the products.

    C = sums; for i, j: Y[i, j] = C[i, j] * s[i] * t[j]
    ->
    a[i] = s[i]; b[j] = t[j]; C = sums; for i, j: Y[i, j] = C[i, j] * a[i] * b[j]

Memory answers beside the products. Where they are used, a thread would read columns for each of its rows
anew, as compilers do not know that a store leaves them alone, and wait for them each time. H200, bytes scaled
by rows and by columns, results of float32, us read there and so: 8192 x 8192 x 1024 in tiles of 128 x 128 183
and 145, of 64 x 256 253 and 148, 4096 x 4096 x 4096 98 and 92, 118 and 93.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import TensorLoad

from tilec.backends.cuda.analysis.layouts.read_tiles import read_tile
from tilec.backends.cuda.nodes import BoxLoad
from tilec.backends.cuda.statement_roles.split.registers import fits_beside
from tilec.ir.exprs import inlined, loads, same, substitute, transform, uses
from tilec.ir.nodes import Alloc, Bind, Block, Gemm, Launch, Parallel, Stmt, Store, walk
from tilec.ir.nodes.barriers import Group, SetRegisters, WaitPhase
from tilec.ir.traits import buffers, defined
from tilec.lowering.analysis.accesses import values_of
from tilec.lowering.analysis.uses import changed_in
from tilec.lowering.emission.storage import element_bytes
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

#: Rows, and columns, of each of which a lane of a warpgroup has the elements of one.
_ROWS, _COLUMNS = 32, 4


class ReadForResults(LaunchPass):
    """In: warpgroups whose blocks have a multiprocessor for themselves, with loops over sums behind products.
    Out: a fragment, read in front of the products, for each element of a tensor that nothing writes and that
    such a loop reads by one of its variables alone, where registers hold them all."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with such fragments; one without rings as it is."""
        if not any(isinstance(stmt, BoxLoad) for stmt in walk(launch.body)):
            return launch
        changed = changed_in(launch)

        def rewrite(stmt: Stmt) -> Stmt:
            if not isinstance(stmt, Group) or not any(isinstance(own, SetRegisters) for own in stmt.body):
                return stmt
            return replace(stmt, body=rewrite_blocks(stmt.body, lambda block: _read(block, stmt, changed)))

        return replace(launch, body=tuple(map(rewrite, launch.body)))


def _read(block: Block, group: Group, changed: Set[Var]) -> list[Stmt]:
    """A block with fragments in front of its first products; as it is where it has none, or no room."""
    first = next((place for place, stmt in enumerate(block) if _begins(stmt)), len(block))
    last = max((place for place, stmt in enumerate(block) if _multiplies(stmt)), default=len(block))
    sums = {stmt.c.buffer for stmt in walk(block) if isinstance(stmt, Gemm)}
    late = {var for stmt in walk(block[first:]) for var in defined(stmt)}
    reader = _Reader(changed, late, values_of(block))
    behind = [reader.stmt(stmt, sums) for stmt in block[last + 1 :]]
    if not reader.found or not fits_beside(group.body, group, reader.words):
        return list(block)
    return [*block[:first], *reader.before(), *block[first : last + 1], *behind]


def _begins(stmt: Stmt) -> bool:
    """Whether a statement waits for what a product takes, or is one."""
    return any(isinstance(inner, (WaitPhase, Gemm)) for inner in walk((stmt,)))


def _multiplies(stmt: Stmt) -> bool:
    return any(isinstance(inner, Gemm) for inner in walk((stmt,)))


@dataclass
class _Reader:
    """What loops read of tensors by rows or columns: each element with the variable that tells its place, its
    fragment and the loop that fills that. ``changed``: buffers that the launch writes; ``late``: names that
    are not known yet in front of the products; ``values``: those that are bound to something."""

    changed: Set[Var]
    late: Set[Var]
    values: dict[Var, Expr]
    found: list[tuple[TensorLoad, Var, Alloc, Parallel]] = field(default_factory=list)
    words: int = 0

    def before(self) -> Block:
        """What reads the fragments."""
        return tuple(stmt for _, _, alloc, loop in self.found for stmt in (alloc, loop))

    def stmt(self, stmt: Stmt, sums: Set[Var]) -> Stmt:
        """A loop over ``sums`` with its rows and columns from fragments; anything else as it is."""
        if not isinstance(stmt, Parallel) or len(stmt.vars) != 2 or not sums & set(_named(stmt)):
            return stmt
        if stmt.hints.given or not all(isinstance(inner, (Bind, Store)) for inner in stmt.body):
            return stmt
        names = self.values | values_of(stmt.body)

        def visit(node: Expr) -> Expr | None:
            return self._held(node, stmt, names) if isinstance(node, TensorLoad) else None

        body = tuple(replace(inner, value=transform(inner.value, visit)) for inner in stmt.body)  # type: ignore[attr-defined, call-arg]
        return replace(stmt, body=body)

    def _held(self, load: TensorLoad, loop: Parallel, names: dict[Var, Expr]) -> Expr | None:
        """The element of a fragment for one of a tensor; None where a load is something else."""
        if load.source.scope() != "global" or load.source in self.changed:
            return None
        indices = [inlined(index, names) for index in load.indices]
        mine = [var for var in loop.vars if any(uses(index, (var,)) for index in indices)]
        if len(mine) != 1 or any(uses(index, self.late - {*loop.vars}) for index in indices):
            return None
        if any(True for index in indices for _ in loads(index)):
            return None
        (var,) = mine
        return tirx.BufferLoad(self._fragment(tirx.BufferLoad(load.source, indices), var, loop), [var])

    def _fragment(self, load: TensorLoad, var: Var, loop: Parallel) -> Var:
        """The fragment of an element, each read once."""
        at = loop.vars.index(var)
        for known, own, alloc, filling in self.found:
            if filling.extents == (loop.extents[at],) and same(substitute(known, {own: var}), load):
                return alloc.buffer
        alloc, filling = read_tile(load, loop, [var], "read")
        self.found.append((load, var, alloc, filling))
        shared = _COLUMNS if at else _ROWS
        self.words += -(-loop.extents[at] // shared * element_bytes(str(load.source.dtype)) // 4)
        return alloc.buffer


def _named(loop: Parallel) -> Iterator[Var]:
    """The buffers that a loop names."""
    return (buffer for stmt in loop.body for buffer in buffers(stmt))
