"""Where in the author's file a statement comes from, for errors, and what it works on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tilec.errors import Place, TilecError
from tilec.ir.nodes import Kernel, Stmt, walk
from tilec.ir.places import place_of
from tilec.ir.traits import buffers

if TYPE_CHECKING:
    from tvm.ir import Var


@contextmanager
def located(stmt: Stmt) -> Iterator[None]:
    """Errors of the block that name no place are those of ``stmt``."""
    try:
        yield
    except TilecError as error:
        error.place = error.place or place_of(stmt)
        raise


@contextmanager
def explained(kernel: Kernel) -> Iterator[None]:
    """Errors of the block name a place in the author's file, at least that of the launch, and list the
    buffers of the statements there."""
    try:
        yield
    except TilecError as error:
        launches = [place_of(launch, "T.Kernel") for launch in kernel.launches]
        error.place = error.place or next(iter(launches), None)
        error.given = error.given or _given(kernel, error.place)
        raise


def _given(kernel: Kernel, place: Place | None) -> str:
    """The buffers of the statements that begin in the line of ``place``."""
    if place is None:
        return ""
    there = [stmt for stmt in walk(kernel.body) if (at := place_of(stmt)) and at.line == place.line]
    there = [stmt for stmt in there if stmt.loc is not None and stmt.loc.file == place.file]
    return "\n".join(dict.fromkeys(described(buffer) for stmt in there for buffer in buffers(stmt)))


def described(buffer: Var) -> str:
    """A buffer as errors list it."""
    shape = ", ".join(map(str, buffer.shape))
    return f"{buffer.name}: {buffer.dtype}[{shape}] in {buffer.scope()} memory"
