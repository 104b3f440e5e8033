"""Statements that threads run as they stand. T.Parallel refuses them: any thread may run an iteration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilec.language.values.kernel import session as sessions
from tilec.language.values.kernel.places import unsupported

if TYPE_CHECKING:
    from tilec.ir.nodes import Stmt
    from tilec.language.values.kernel.builder import Builder


def outside_parallel(construct: str, remedy: str = "move it in front of the loop or behind it") -> Builder:
    """The builder, for a statement of threads. Raises `UnsupportedError` in T.Parallel."""
    builder = sessions.builder(construct)
    if builder.is_in_parallel:
        raise unsupported(
            f"{construct} in T.Parallel", why="which thread runs an iteration is open", remedy=remedy
        )
    return builder


def emit_outside_parallel(construct: str, stmt: Stmt) -> None:
    """Adds a statement of threads. Raises `UnsupportedError` in T.Parallel."""
    outside_parallel(construct).emit(stmt, construct)
