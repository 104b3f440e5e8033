"""Marks of the lines of the author's file, which an emulator names where it stops."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.ir.nodes import Stmt

#: The function whose call marks a place in the author's file: code for an emulator, not for a compiler.
PLACE = "tilec_place"


def mark_of(stmt: Stmt) -> Expr | None:
    """The call that says which line of the author's file the code behind it comes from; None for no line."""
    if stmt.loc is None:
        return None
    mark: Expr = tirx.call_extern("int32", PLACE, stmt.loc.file, stmt.loc.line)
    return mark
