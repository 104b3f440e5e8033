"""Thread-level code in pieces: what threads do each for itself, and what the block does once between."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from tilec.ir.nodes import Block, Stmt, children, with_children

if TYPE_CHECKING:
    from tvm.ir import Expr, Var


@dataclass(eq=False)
class Region:
    """Statements that threads run without meeting, each thread all of them, where ``guards`` admit it."""

    stmts: list[Stmt] = field(default_factory=list)
    guards: tuple[Expr, ...] = ()


@dataclass(eq=False)
class Run(Region):
    """A region of which each thread runs the statements for each value of ``lane`` below ``trips``:
    neighbours, which may run in any order."""

    lane: Var = field(kw_only=True)
    trips: int = field(kw_only=True)


@dataclass(eq=False)
class Once:
    """A statement of the block. What it reads of a thread's own is what thread ``reader`` has; None where no
    thread is known to come here."""

    stmt: Stmt
    reader: int | None = 0


@dataclass(eq=False)
class Nest:
    """A loop or branch of the block around ``blocks``, in the order of `tilec.ir.nodes.children`."""

    stmt: Stmt
    blocks: list[list[Piece]]
    reader: int | None = 0


Piece: TypeAlias = "Region | Once | Nest"


def pieces(plan: Sequence[Piece]) -> Iterator[Piece]:
    """All pieces, a nest before what is inside."""
    for piece in plan:
        yield piece
        if isinstance(piece, Nest):
            for block in piece.blocks:
                yield from pieces(block)


def without_blocks(stmt: Stmt) -> Stmt:
    """A loop or branch with nothing inside: its own expressions."""
    empty: list[Block] = [() for _ in children(stmt)]
    return with_children(stmt, empty)
