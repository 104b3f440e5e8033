"""A launch as its block ends: what its statements mean with, and without, thread-level code.

Without it barriers say nothing, and threads end all together. With it, tile operations on a thread's own
storage are loops of that thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

from tilec.ir import nodes as ir
from tilec.ir.analysis.pruned import pruned
from tilec.ir.analysis.threads.repeated import repeated
from tilec.ir.analysis.threads.returns import without_return
from tilec.ir.analysis.threads.uniform import Uniformity
from tilec.ir.exprs import walk
from tilec.ir.nodes.threads import PER_THREAD, Sync
from tilec.language.threads.mixed_loops import dealt_out, fill_in_every_thread, nest, refusal, with_own
from tilec.language.threads.thread_loops import thread_copy, thread_fill, thread_reduce, thread_scan
from tilec.language.threads.threads_hints import losses_of_threads
from tilec.language.values.kernel.access import expressions_of

if TYPE_CHECKING:
    from tvm.ir import Var


def settle(launch: ir.Launch) -> ir.Launch:
    """The launch in the form in which it enters the kernel, and what of its hints that form cannot obey."""
    settled = _settled(launch)
    return replace(settled, roads=(*settled.roads, *losses_of_threads(launch, settled)))


def races(launch: ir.Launch) -> Iterator[ir.Store]:
    """The stores by which all threads of a block update one element of memory that they share."""
    if launch.thread_vars and prod(launch.threads) > 1:
        found = repeated(launch.body, Uniformity(launch))
        yield from (stmt for stmt in found if isinstance(stmt, ir.Store))


def _settled(launch: ir.Launch) -> ir.Launch:
    if not launch.thread_vars:
        return _without_threads(replace(launch, body=without_return(pruned(launch.body, Sync))))
    return replace(launch, body=_Threads(launch).block(launch.body))


def _without_threads(launch: ir.Launch) -> ir.Launch:
    """A launch that names no thread: T.Parallel loops that fill an array of each thread fill it in all."""
    if not any(_is_array(stmt) for stmt in ir.walk(launch.body)):
        return launch

    def rewritten(stmt: ir.Stmt) -> ir.Stmt:
        if isinstance(stmt, ir.Parallel):
            return fill_in_every_thread(stmt, launch)
        return ir.with_children(stmt, [tuple(map(rewritten, block)) for block in ir.children(stmt)])

    return replace(launch, body=tuple(map(rewritten, launch.body)))


def _is_array(stmt: ir.Stmt) -> bool:
    return isinstance(stmt, ir.Alloc) and stmt.buffer.scope() == "local"


class _Threads:
    """Rewrites the statements of a launch with thread-level code."""

    def __init__(self, launch: ir.Launch) -> None:
        self._launch = launch
        self._indices: set[Var] = set(launch.thread_vars)
        for stmt in ir.walk(launch.body):
            if isinstance(stmt, ir.Bind) and self._by_index(stmt.value):
                self._indices.add(stmt.var)

    def block(self, body: ir.Block) -> ir.Block:
        """The statements of a block."""
        return tuple(new for stmt in body for new in self._stmt(stmt))

    def _stmt(self, stmt: ir.Stmt) -> ir.Block:
        rule = _RULES.get(type(stmt))
        if rule is not None and _is_threads(stmt):
            return rule(stmt)
        if isinstance(stmt, ir.Parallel):
            return (self._parallel(stmt),)
        if isinstance(stmt, (*_RULES, *ir.PRODUCTS)):
            self._check_uniform(stmt)
        return (ir.with_children(stmt, [self.block(block) for block in ir.children(stmt)]),)

    def _parallel(self, stmt: ir.Parallel) -> ir.Stmt:
        """A loop of each thread where it writes nothing but the thread's own storage."""
        own = {inner.buffer for inner in ir.walk(stmt.body) if isinstance(inner, ir.Alloc)}
        targets = [inner.buffer for inner in ir.walk(stmt.body) if isinstance(inner, (ir.Store, ir.Atomic))]
        outer = [buffer for buffer in targets if buffer not in own]
        per_thread = [buffer for buffer in outer if buffer.scope() in PER_THREAD]
        if not per_thread:
            self._check_uniform(stmt)
            return stmt
        if len(per_thread) == len(outer):
            return nest(stmt)
        return self._mixed(stmt, [buffer for buffer in outer if buffer not in per_thread], per_thread)

    def _mixed(self, stmt: ir.Parallel, tiles: Sequence[Var], per_thread: Sequence[Var]) -> ir.Stmt:
        """A loop that writes tiles of the block and values of each thread."""
        self._check_uniform(stmt)
        made = with_own(stmt, self._launch, per_thread)
        if made is not None:
            return made
        in_registers = next((tile for tile in tiles if tile.scope() == "local.fragment"), None)
        if in_registers is None:
            return dealt_out(stmt, self._launch)
        raise refusal(
            stmt,
            f"T.Parallel writes {in_registers.name} of the block and {per_thread[0].name} of each thread",
            "which thread has an element of a fragment is open",
            "use two loops, T.serial for what belongs to the thread, or a shared tile",
        )

    def _check_uniform(self, stmt: ir.Stmt) -> None:
        """A statement of the block must not depend on the index of a thread."""
        for inner in ir.walk((stmt,)):
            if any(self._by_index(expr) for expr in expressions_of(inner)):
                word = type(stmt).__name__
                word = word if isinstance(stmt, ir.Parallel) else word.lower()
                raise refusal(
                    stmt,
                    f"T.{word} depends on the index of a thread",
                    "it is one operation of the whole block, shared by its threads",
                    "loop over the thread's own elements with T.serial or T.vectorized",
                )

    def _by_index(self, expr: Any) -> bool:
        from tvm.ir import Expr, Var

        return isinstance(expr, Expr) and any(
            isinstance(node, Var) and node in self._indices for node in walk(expr)
        )


def _is_threads(stmt: Any) -> bool:
    """Whether a tile statement works on the storage of one thread."""
    if isinstance(stmt, ir.Fill):
        return stmt.dst.buffer.scope() in PER_THREAD
    source = stmt.src.buffer.scope() in PER_THREAD
    return source or (isinstance(stmt, ir.Copy) and stmt.dst.buffer.scope() in PER_THREAD)


_RULES: dict[type, Callable[[Any], ir.Block]] = {
    ir.Copy: thread_copy,
    ir.Fill: thread_fill,
    ir.Reduce: thread_reduce,
    ir.Scan: thread_scan,
}
