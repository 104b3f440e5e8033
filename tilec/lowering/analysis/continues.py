"""Continue in a Parallel body as nested branches.

if a[i] < 0: continue                 if not a[i] < 0:
b[i] = a[i]                    ->         b[i] = a[i]
"""

from __future__ import annotations

from dataclasses import replace

from tilec.ir.nodes import Block, Continue, If, Stmt


def without_continue(body: Block) -> Block:
    """``body`` with every ``continue`` of the iteration itself (not of loops inside) replaced: what follows
    it stands in the branches that do not continue."""
    for position, stmt in enumerate(body):
        if isinstance(stmt, Continue):
            return body[:position]
        if isinstance(stmt, If) and _continues(stmt):
            rest = body[position + 1 :]
            return (*body[:position], _with_rest(stmt, rest))
    return body


def _continues(stmt: Stmt) -> bool:
    if isinstance(stmt, Continue):
        return True
    return isinstance(stmt, If) and any(_continues(inner) for inner in (*stmt.then, *stmt.orelse))


def _with_rest(stmt: If, rest: Block) -> If:
    then = without_continue((*stmt.then, *rest))
    orelse = without_continue((*stmt.orelse, *rest))
    return replace(stmt, then=then, orelse=orelse)
