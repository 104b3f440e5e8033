"""The author's own schedule of a pipelined loop: lists of stages and of the order within a trip."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tilec.errors import SourceError, SourceValueError
from tilec.ir import nodes as ir
from tilec.language.values.kernel.access import read_by, written_by
from tilec.language.values.kernel.places import source_error
from tilec.spelling import counted


def check_lists(order: Sequence[int] | None, stage: Sequence[int] | None) -> None:
    """Raises `SourceValueError` for lists of different lengths, and for an order that names a place twice or
    leaves one out. Negative entries leave a statement to the compiler."""
    if order is not None and stage is not None and len(order) != len(stage):
        raise _wrong(
            f"order has {counted(len(order), 'entry', 'entries')}, stage has {len(stage)}",
            "give one entry per statement",
        )
    places = sorted(place for place in order or () if place >= 0)
    if places != list(range(len(places))):
        raise _wrong(f"order={list(order or ())} is no permutation", "number the statements 0, 1, 2, ...")


def check_dependences(loop: ir.Pipelined) -> None:
    """Raises `SourceValueError` where a statement is to run before one that makes what it reads. Lists that
    count other things than the loop's statements are taken as hints."""
    statements = [stmt for stmt in loop.body if not isinstance(stmt, (ir.Alloc, ir.Bind))]
    order, stage = loop.order, loop.stage
    if order is None or stage is None or len(stage) != len(statements) or min(*order, *stage) < 0:
        return
    for late, consumer in enumerate(statements):
        for early, producer in enumerate(statements[:late]):
            made = {buffer for stmt in ir.walk((producer,)) for buffer in written_by(stmt)}
            used = [buffer for buffer in _read(consumer) if buffer in made]
            if used and (stage[early], order[early]) > (stage[late], order[late]):
                raise _wrong(
                    f"statement {early} makes {used[0].name}, statement {late} reads it and comes first",
                    "give what makes a tile an earlier stage, or an earlier place in order",
                )


def _read(stmt: ir.Stmt) -> Iterator[Any]:
    for inner in ir.walk((stmt,)):
        yield from read_by(inner)


def _wrong(what: str, remedy: str) -> SourceError:
    return source_error(SourceValueError, f"T.Pipelined: {what}", construct="T.Pipelined", remedy=remedy)
