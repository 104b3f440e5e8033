"""Statements that T.Parallel refuses: those that threads run as they stand, as any thread may run an
iteration, and what the whole block has or does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilec.language.values.kernel import session as sessions
from tilec.language.values.kernel.places import unsupported

if TYPE_CHECKING:
    from tilec.ir.nodes import Stmt
    from tilec.language.values.kernel.builder import Builder


#: Why not, of what threads do.
_OPEN = "which thread runs an iteration is open"


def outside_parallel(
    construct: str, remedy: str = "move it in front of the loop or behind it", why: str = _OPEN
) -> Builder:
    """The builder, for a statement of threads or of the block. Raises `UnsupportedError` in T.Parallel."""
    builder = sessions.builder(construct)
    if builder.is_in_parallel:
        raise unsupported(f"{construct} in T.Parallel", why=why, remedy=remedy)
    return builder


def product_builder(construct: str) -> Builder:
    """The builder, for a product. Raises `UnsupportedError` in T.Parallel."""
    why = "the threads of a block make a product together, and iterations are theirs one by one"
    return outside_parallel(construct, "loop with T.serial around it", why)


def emit_outside_parallel(construct: str, stmt: Stmt) -> None:
    """Adds a statement of threads. Raises `UnsupportedError` in T.Parallel."""
    outside_parallel(construct).emit(stmt, construct)
