"""The statements of a block, those of loops over elements left out: they belong to all threads together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilec.ir.nodes import Block, Parallel, Stmt, children

if TYPE_CHECKING:
    from collections.abc import Iterator


def outermost(block: Block) -> Iterator[Stmt]:
    """The statements of a block and of those inside it, parents first, a Parallel as one."""
    for stmt in block:
        yield stmt
        for inner in () if isinstance(stmt, Parallel) else children(stmt):
            yield from outermost(inner)
