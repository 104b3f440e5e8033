"""Hints of copies and loops that become loops of single threads: losses, since nothing is shared there."""

from __future__ import annotations

from collections.abc import Iterator

from tilec.ir import nodes as ir
from tilec.ir.exprs import int_value
from tilec.ir.hints import Hints
from tilec.ir.nodes.barriers import BulkLoad, ClusterCopy
from tilec.ir.nodes.threads import PER_THREAD
from tilec.ir.roads import Loss, Road

_WHY = "is one of a copy or a loop that the threads of a block share, here each moves elements by itself"


def losses_of_threads(launch: ir.Launch, settled: ir.Launch) -> Iterator[Road]:
    """What statements of ``launch`` ask for and those of ``settled``, its form in the kernel, can no longer
    obey: they belong to single threads, or to single iterations of a loop."""
    kept = {(stmt.loc, _hints(stmt)) for stmt in _shared(settled.body)}
    for stmt in ir.walk(launch.body):
        hints = _hints(stmt)
        if hints is None or (stmt.loc, hints) in kept:
            continue
        for name in hints.unheard:
            yield _road(stmt, Loss("", f"{name} {_WHY}", "leave it out, or copy a tile of the block"))


def _hints(stmt: ir.Stmt) -> Hints | None:
    """What a statement asks for; None for nothing."""
    asking = isinstance(stmt, (ir.Copy, ir.Parallel, BulkLoad, ClusterCopy))
    return stmt.hints if asking and stmt.hints.given else None  # type: ignore[attr-defined]


def _shared(block: ir.Block) -> Iterator[ir.Stmt]:
    """The statements of a block that its threads share, those inside of loops over elements left out."""
    for stmt in block:
        alone = isinstance(stmt, ir.Copy) and (_is_private(stmt) or _is_single(stmt))
        if not alone:
            yield stmt
        for inner in () if isinstance(stmt, ir.Parallel) else ir.children(stmt):
            yield from _shared(inner)


def _is_private(stmt: ir.Copy) -> bool:
    return stmt.dst.buffer.scope() in PER_THREAD


def _is_single(stmt: ir.Copy) -> bool:
    return all(int_value(extent) == 1 for extent in stmt.dst.extent)


def _road(stmt: ir.Stmt, loss: Loss) -> Road:
    name = "T.Parallel" if isinstance(stmt, ir.Parallel) else "T.copy"
    file, line = ("", 0) if stmt.loc is None else (stmt.loc.file, stmt.loc.line)
    return Road(name, "hint", "not as its author asks", file, line, loss)
