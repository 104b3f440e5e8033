"""Loops that read an accumulator's neighbours run over pairs of them: a lane holds both."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import TensorLoad

from tilec.backends.cuda.analysis.layouts.fragments import PAIR
from tilec.backends.cuda.analysis.layouts.held_alike import held_alike, sums_in
from tilec.backends.cuda.analysis.layouts.loops import loop_extents, loop_lines
from tilec.ir.exprs import dtype_of, loads, same, transform
from tilec.ir.nodes import Bind, Block, Launch, Parallel, Stmt, Store, is_global, walk
from tilec.ir.traits import Rewriter, loads_of
from tilec.lowering.analysis.accesses import accesses
from tilec.lowering.analysis.counted import counted
from tilec.lowering.at_values import at_values
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks

if TYPE_CHECKING:
    from collections.abc import Set

    from tvm.ir import Expr, Var

    from tilec.lowering.analysis.accesses import Access


class SplitPairs(LaunchPass):
    """In: Parallel loops that read fragments in the layout of a product's sums at other columns than their
    own. Out: where all that a loop reads of them for two neighbouring columns are these two, it runs over
    pairs of columns, and its body says what becomes of either; what both read of tensors is read once. Such
    loops need no element of another thread."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with its loops over pairs."""
        sums = sums_in(walk(launch.body))
        if not sums:
            return launch
        held = held_alike(walk(launch.body), sums)
        body = rewrite_blocks(launch.body, lambda block: [_stmt(stmt, held) for stmt in block])
        return replace(launch, body=body)


def _stmt(stmt: Stmt, held: Set[Var]) -> Stmt:
    if not isinstance(stmt, Parallel) or stmt.hints.given or not _reads_neighbours(stmt, held):
        return stmt
    made = _paired(stmt)
    return made if made is not None and _is_apart(made, held) else stmt


def _reads_neighbours(loop: Parallel, held: Set[Var]) -> bool:
    """Whether a loop of plain stores reads elements of ``held`` fragments that are not its own, and writes
    none of these fragments."""
    if not all(isinstance(stmt, (Bind, Store)) for stmt in loop.body):
        return False
    items = [item for item in accesses(loop.body) if item.buffer in held]
    others = {item.buffer for item in items if not item.is_write and not _is_held(item, loop)}
    return bool(others) and not any(item.is_write and item.buffer in others for item in items)


def _is_held(item: Access, loop: Parallel) -> bool:
    """Whether an access names elements of a lane's own as it stands: its iteration's, or one of a pair that
    is this iteration's."""
    lines = loop_lines(item, loop)
    return lines is not None and all(own[0].per == 1 and own[0].factor <= PAIR for own in lines if own)


def _paired(loop: Parallel) -> Parallel | None:
    """A loop over pairs of its last variable's values; None where they are odd."""
    *extents, last = loop_extents(loop)
    if last % PAIR:
        return None
    var = loop.vars[-1]
    pair = tirx.Var(str(var.name), dtype_of(var))
    variables, sizes = (*loop.vars[:-1], pair), (*extents, last // PAIR)
    analyzer = counted(variables, sizes)
    body: list[Stmt] = []
    for number in range(PAIR):
        column = pair * tirx.const(PAIR, dtype_of(var)) + tirx.const(number, dtype_of(var))
        body += at_values(loop.body, {var: column}, analyzer)
    return replace(loop, vars=variables, extents=sizes, body=_once(body))


def _is_apart(loop: Parallel, held: Set[Var]) -> bool:
    """Whether every element of ``held`` fragments that a loop over pairs names is one of its pair."""
    items = [item for item in accesses(loop.body) if item.buffer in held]
    return all(loop_lines(item, loop) is not None for item in items)


def _once(body: list[Stmt]) -> Block:
    """Statements that read an element of a tensor, which several of them read, once."""
    written = {stmt.buffer for stmt in body if isinstance(stmt, Store)}
    found = list(loads_of(*body))
    names: list[tuple[TensorLoad, Var]] = []
    for position, load in enumerate(found):
        outside = is_global(load.source) and load.source not in written
        again = any(same(load, other) for other in found[position + 1 :])
        known = any(same(load, other) for other, _ in names)
        looked_up = any(True for index in load.indices for _ in loads(index))
        if outside and again and not known and not looked_up:
            names.append((load, tirx.Var(f"{load.source.name}_own", dtype_of(load))))
    return (*(Bind(var, load) for load, var in names), *_Named(names).block(body))


class _Named(Rewriter):
    """Statements over names of elements."""

    def __init__(self, names: list[tuple[TensorLoad, Var]]) -> None:
        super().__init__()
        self._names = names

    def expr(self, expr: Expr) -> Expr:
        """With the names."""
        return transform(expr, self._node)

    def _node(self, node: Expr) -> Expr | None:
        if not isinstance(node, TensorLoad):
            return None
        return next((var for load, var in self._names if same(load, node)), None)
