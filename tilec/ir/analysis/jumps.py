"""Statements that leave the block that they stand in."""

from __future__ import annotations

from collections.abc import Iterator

from tilec.ir.nodes import LOOPS, Break, Continue, Stmt, children


def jumps(stmt: Stmt) -> Iterator[Stmt]:
    """The Break and Continue in ``stmt``, or that it is, of loops around it."""
    if isinstance(stmt, (Break, Continue)):
        yield stmt
    if isinstance(stmt, LOOPS):
        return
    for block in children(stmt):
        for inner in block:
            yield from jumps(inner)
