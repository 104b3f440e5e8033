"""T.Parallel loops that write values of each thread, alone or beside tiles of the block.

Where every iteration writes the thread's value before it reads it, and nobody reads it behind the loop, it is
one of the iteration. Otherwise the iterations are dealt out, the first one to the first thread, and each
thread runs its own one after the other; then all of them together have counted every iteration once. An array
of each thread that a loop fills by its variables is filled in every thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tilec.errors import UnsupportedError
from tilec.ir import nodes as ir
from tilec.ir.exprs import as_expr, int_value, loads, same_number, walk
from tilec.ir.nodes.threads import PER_THREAD
from tilec.ir.places import place_of
from tilec.language.values.kernel.access import expressions_of, read_by, written_by

if TYPE_CHECKING:
    from tvm.ir import Expr, Var


def with_own(loop: ir.Parallel, launch: ir.Launch, buffers: Iterable[Var]) -> ir.Parallel | None:
    """The loop with ``buffers`` of each iteration; None where they carry values from one to another."""
    names = list(dict.fromkeys(buffers))
    if not all(_is_temporary(buffer, launch) for buffer in names):
        return None
    from tilec.ir.analysis.renaming import copied

    allocs = tuple(ir.Alloc(buffer, loc=loop.loc) for buffer in names)
    (made,) = copied((ir.Parallel(loop.vars, loop.extents, (*allocs, *loop.body), loop.hints, loc=loop.loc),))
    assert isinstance(made, ir.Parallel)
    return made


def dealt_out(loop: ir.Parallel, launch: ir.Launch) -> ir.Stmt:
    """The iterations of the loop, each in one thread: thread t has number t, t + threads, ..."""
    from tvm import tirx

    from tilec.ir.serial import serial_loop

    threads = launch.threads[0] * launch.threads[1] * launch.threads[2]
    kind = str(loop.vars[0].ty.dtype)
    total = _product(loop.extents, kind)
    turn, number = tirx.Var("turn", kind), tirx.Var("iteration", kind)
    place = turn * threads + _thread(launch, kind)
    binds = _indices(loop, number)
    inside = ir.If(number < total, (*binds, *loop.body), loc=loop.loc)
    body = (ir.Bind(number, place, loc=loop.loc), inside)
    count = tirx.floordiv(total + (threads - 1), tirx.const(threads, kind))
    return serial_loop(turn, count, body, loop.loc)


def _indices(loop: ir.Parallel, number: Var) -> tuple[ir.Stmt, ...]:
    """The loop's variables of an iteration, the last one the fastest."""
    from tvm import tirx

    rest: Expr = number
    found: list[ir.Stmt] = []
    for var, extent in reversed(list(zip(loop.vars, loop.extents, strict=True))):
        size = as_expr(extent, str(var.ty.dtype))
        found.append(ir.Bind(var, tirx.floormod(rest, size), loc=loop.loc))
        rest = tirx.floordiv(rest, size)
    return tuple(reversed(found))


def _thread(launch: ir.Launch, kind: str) -> Expr:
    """The number of the thread in its block, x fastest."""
    x, y, z = launch.thread_vars
    width, height, _ = launch.threads
    found: Expr = (x + y * width + z * (width * height)).astype(kind)
    return found


def _product(extents: Sequence[int | Expr], kind: str) -> Expr:
    total = as_expr(1, kind)
    for extent in extents:
        total = total * as_expr(extent, kind)
    return total


def nest(stmt: ir.Parallel) -> ir.Stmt:
    """The iterations one after the other."""
    from tilec.ir.serial import serial_loop, serial_nest

    inner = serial_loop(stmt.vars[-1], stmt.extents[-1], stmt.body, stmt.loc)
    plain = all(isinstance(each, (ir.Store, ir.Bind)) for each in stmt.body)
    if plain and int_value(stmt.extents[-1]) is not None:
        inner = replace(inner, kind="vectorized")
    return serial_nest(stmt.vars[:-1], stmt.extents[:-1], (inner,), stmt.loc)[0]


def fill_in_every_thread(stmt: ir.Parallel, launch: ir.Launch) -> ir.Stmt:
    """The loop, run by every thread if it stores to an array of each thread by its own variables."""
    stores = [inner for inner in ir.walk(stmt.body) if isinstance(inner, (ir.Store, ir.Atomic))]
    own = {inner.buffer for inner in ir.walk(stmt.body) if isinstance(inner, ir.Alloc)}
    outer = [store for store in stores if store.buffer not in own]
    arrays = [store for store in outer if store.buffer.scope() == "local"]
    if not arrays:
        return stmt
    made = with_own(stmt, launch, [store.buffer for store in arrays])
    if made is not None or not any(_depends(store.indices, stmt.vars) for store in arrays):
        return made or stmt
    if all(_may_repeat(store, stmt) for store in outer):
        return nest(stmt)
    other = next(store.buffer for store in outer if not _may_repeat(store, stmt))
    raise refusal(
        stmt,
        f"T.Parallel writes {other.name} of the block and {arrays[0].buffer.name} of each thread",
        "every thread needs all iterations of the one, and the other counts each once",
        "use two loops",
    )


def _may_repeat(store: Any, loop: ir.Parallel) -> bool:
    """Whether every thread may run a store: it is the thread's own, or one that writes the same each time."""
    if store.buffer.scope() in PER_THREAD:
        return True
    reads = (buffer for inner in ir.walk(loop.body) for buffer in read_by(inner))
    is_plain = isinstance(store, ir.Store) and store.buffer.scope() != "local.fragment"
    return is_plain and not any(store.buffer.same_as(buffer) for buffer in reads)


def _depends(indices: Sequence[Any], variables: Sequence[Var]) -> bool:
    return any(node in variables for index in indices for node in walk(index) if _is_var(node))


def _is_var(node: Any) -> bool:
    from tvm.ir import Var

    return isinstance(node, Var)


def refusal(stmt: ir.Stmt, what: str, why: str, remedy: str) -> UnsupportedError:
    """The error for a statement that has no meaning for threads."""
    return UnsupportedError(what, place=place_of(stmt), why=why, remedy=remedy)


# ---- values that are an iteration's ----


def _is_temporary(buffer: Var, launch: ir.Launch) -> bool:
    """Whether all reads of ``buffer`` are in T.Parallel loops that write it first."""
    loops = [
        stmt for stmt in ir.walk(launch.body) if isinstance(stmt, ir.Parallel) and _mentions(stmt, buffer)
    ]
    inside = {stmt for loop in loops for stmt in ir.walk(loop.body)}
    outside = (stmt for stmt in ir.walk(launch.body) if stmt not in inside)
    if any(_has(read_by(stmt), buffer) for stmt in outside):
        return False
    return all(_WrittenFirst(buffer).holds(loop.body) for loop in loops)


def _mentions(loop: ir.Parallel, buffer: Var) -> bool:
    return any(_has((*read_by(stmt), *written_by(stmt)), buffer) for stmt in ir.walk(loop.body))


def _has(buffers: Iterable[Any], buffer: Var) -> bool:
    return any(buffer.same_as(other) for other in buffers)


class _WrittenFirst:
    """Walks the statements of an iteration in order. ``_places``: elements that it has written for certain,
    by the text of their indices; ``_whole``: all of them."""

    def __init__(self, buffer: Var) -> None:
        self._buffer, self._places, self._whole = buffer, set[str](), False

    def holds(self, block: ir.Block) -> bool:
        """Whether no element is read that the iteration has not written."""
        return all(self._stmt(stmt) for stmt in block)

    def _stmt(self, stmt: ir.Stmt) -> bool:
        if not self._reads_written(stmt):
            return False
        if isinstance(stmt, ir.If):
            before = set(self._places), self._whole
            right = [self.holds(block) for block in ir.children(stmt)]
            self._places, self._whole = before
            return all(right)
        if not all(self.holds(block) for block in ir.children(stmt)):
            return False
        self._take(stmt)
        return True

    def _reads_written(self, stmt: ir.Stmt) -> bool:
        if not _has(read_by(stmt), self._buffer) or self._whole:
            return True
        found = [
            load for expr in expressions_of(stmt) for load in loads(expr) if load.source.same_as(self._buffer)
        ]
        return bool(found) and all(str(list(load.indices)) in self._places for load in found)

    def _take(self, stmt: ir.Stmt) -> None:
        """What the statement writes."""
        if isinstance(stmt, ir.Store) and stmt.buffer.same_as(self._buffer):
            self._places.add(str(list(stmt.indices)))
        if isinstance(stmt, ir.Fill) and stmt.dst.buffer.same_as(self._buffer):
            self._whole = all(map(same_number, stmt.dst.extent, self._buffer.shape))
        if isinstance(stmt, ir.For) and len(self._buffer.shape) == 1:
            runs_over_all = int_value(stmt.start) == 0 and same_number(stmt.stop, self._buffer.shape[0])
            self._whole |= runs_over_all and str([stmt.var]) in self._places
