"""Where in the author's file a statement comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilec.errors import Place

if TYPE_CHECKING:
    from tilec.ir.nodes import Stmt


def place_of(stmt: Stmt, construct: str | None = None) -> Place | None:
    """The statement's line, with the name of the author's ``construct``; None where no line is known."""
    loc = stmt.loc
    return None if loc is None else Place(loc.file, loc.line, construct, loc.columns)
