"""Blocks that are one branch."""

from __future__ import annotations

from tilec.ir.nodes import Block, If, Stmt


def lone_branch(block: Block, beside: tuple[type[Stmt], ...]) -> If | None:
    """The branch that is all that a block does but for statements of some kinds ``beside`` it, in front; None
    where it does something else, or something where the condition fails."""
    *front, last = block
    plain = all(isinstance(stmt, beside) for stmt in front)
    return last if plain and isinstance(last, If) and not last.orelse else None
