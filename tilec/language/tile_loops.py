"""Loops over tiles that operations without a statement of their own become."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tilec.ir import nodes as ir
from tilec.language import session as sessions
from tilec.language.boxes import Box, expression_of, same
from tilec.language.places import loc

if TYPE_CHECKING:
    from tvm.ir import Expr

_NAMES = "ijklmn"


def over(extents: tuple[Any, ...], body: Callable[..., ir.Block], construct: str) -> None:
    """Adds a Parallel over ``extents`` (ints or expressions) whose body is ``body(*variables)``."""
    from tvm import tirx

    variables = tuple(
        tirx.Var(_NAMES[axis % len(_NAMES)], str(expression_of(extent).ty.dtype))
        for axis, extent in enumerate(extents)
    )
    stmt = ir.Parallel(variables, extents, body(*variables), loc=loc())
    sessions.builder(construct).emit(stmt, construct)


def long_extents(box: Box) -> tuple[Any, ...]:
    """The extents other than 1; a single 1 where there is no other."""
    return tuple(extent for extent in box.extents or () if not same(extent, 1)) or (1,)


def element_at(box: Box, places: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """The indices of an element of ``box``; ``places`` pair up with its axes of more than one element."""
    rest = list(places)
    indices = []
    for start, extent in zip(box.starts, box.extents or (), strict=True):
        long = not same(extent, 1) and bool(rest)
        indices.append(sessions.simplify(start + rest.pop(0)) if long else start)
    return tuple(indices)
