"""Loops over tiles that operations without a statement of their own become."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tilec.ir.hints import Hints
from tilec.language.control.loops import Parallel
from tilec.language.tiles.memory.boxes import Box, same
from tilec.language.values.kernel import session as sessions
from tilec.language.values.value import Value

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.language.tiles.memory.buffers import Element


def over(extents: tuple[Any, ...], body: Callable[..., None], hints: Hints | None = None) -> None:
    """Adds a Parallel over ``extents`` (ints or expressions) with the statements that ``body(*variables)``
    adds, and with ``hints``; its variables are `Value`s."""
    sizes = [extent if isinstance(extent, int) else Value(extent) for extent in extents]
    nest = Parallel(*sizes)
    nest.options["hints"] = hints or Hints()
    opened = nest.open()
    body(*(opened if isinstance(opened, tuple) else (opened,)))
    nest.close()


def long_extents(box: Box) -> tuple[Any, ...]:
    """The extents other than 1; a single 1 where there is no other."""
    return tuple(extent for extent in box.extents or () if not same(extent, 1)) or (1,)


def element_at(box: Box, places: tuple[Value, ...]) -> Element:
    """An element of ``box``; ``places`` pair up with its axes of more than one element."""
    rest = [place.expr for place in places]
    indices: list[Expr] = []
    for start, extent in zip(box.starts, box.extents or (), strict=True):
        long = not same(extent, 1) and bool(rest)
        indices.append(sessions.simplify(start + rest.pop(0)) if long else start)
    return box.buffer.element(tuple(indices))
