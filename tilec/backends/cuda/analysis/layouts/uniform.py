"""Elements of fragments that scalar statements read: bounds of loops, conditions, indices.

A fragment is spread over threads, and every thread runs a scalar statement: such an element has to be known
to all, by a layout that copies it or through shared memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.layouts.tiles import every_element
from tilec.backends.cuda.analysis.pipelines.versions import with_buffers
from tilec.backends.cuda.nodes import ThreadLoop
from tilec.errors import UnsupportedError
from tilec.ir.layout_algebra import thread_terms
from tilec.ir.nodes import Alloc, Atomic, Bind, If, Stmt, Store
from tilec.ir.places import place_of
from tilec.ir.traits import loads_of

if TYPE_CHECKING:
    from tvm.ir import Var

    from tilec.ir.layout import Layout


def staged_scalars(
    stmt: Stmt, fragments: set[Var], layouts: Mapping[Var, Layout], shared: Callable[[Var], Var]
) -> tuple[list[Stmt], Stmt, list[Stmt]]:
    """The statement with the fragments that it names element by element in shared memory, between the copies
    there and back. Fragments that every thread holds whole stay where they are."""
    if isinstance(stmt, ThreadLoop):
        return [], stmt, []
    named = {load.source: None for load in loads_of(stmt)}
    written = stmt.buffer if isinstance(stmt, Store) else None
    if written is not None:
        named[written] = None
    spread = [buffer for buffer in named if buffer in fragments and not is_everywhere(layouts[buffer])]
    if not spread:
        return [], stmt, []
    if not isinstance(stmt, (Alloc, Atomic, Bind, Store, If)):
        raise UnsupportedError(
            f"{type(stmt).__name__} reads elements of {spread[0].name}, which is spread over threads",
            place=place_of(stmt),
            remedy="bind the element to a name before the statement",
        )
    tiles = {buffer: shared(buffer) for buffer in spread}
    before: list[Stmt] = [every_element(old, new, stmt) for old, new in tiles.items()]
    after: list[Stmt] = []
    if written is not None and written in tiles:
        after.append(every_element(tiles[written], written, stmt))
    if isinstance(stmt, If):
        (head,) = with_buffers((replace(stmt, then=(), orelse=()),), tiles)
        return before, replace(head, then=stmt.then, orelse=stmt.orelse), after  # type: ignore[call-arg]
    return before, with_buffers((stmt,), tiles)[0], after


def is_everywhere(layout: Layout) -> bool:
    """Whether every thread holds all elements."""
    return not any(thread_terms(layout, axis) for axis in range(len(layout.digits)))
