"""Iterations that exchange elements of one buffer: butterflies, compare-and-swap of sorting networks.

An iteration writes two elements of a buffer or more, and each of them with what it read from another of
them. No other iteration writes these: reading an element that another iteration writes is undefined, and
what is no update of an element by itself is no accumulation, which iterations may share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilec.ir.exprs import inlined, loads, same_all
from tilec.ir.nodes import Store, walk
from tilec.lowering.analysis.accesses import values_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tvm.ir import Expr, Var

    from tilec.ir.nodes import Block
    from tilec.lowering.emission.context import Context

    Place = tuple[Expr, ...]


def exchanges(buffer: Var, body: Block, ctx: Context) -> bool:
    """Whether every store of ``body`` to ``buffer`` takes part in an exchange."""
    stores = [stmt for stmt in walk(body) if isinstance(stmt, Store) and stmt.buffer.same_as(buffer)]
    places = [_inlined(stmt.indices, ctx) for stmt in stores]
    read = [_read(stmt.value, buffer, body, ctx) for stmt in stores]
    return all(_is_exchanged(number, places, read) for number in range(len(stores)))


def _is_exchanged(number: int, places: Sequence[Place], read: Sequence[Sequence[Place]]) -> bool:
    """Whether another store writes with what was read where this one writes."""
    own = places[number]
    return any(
        not same_all(own, place) and any(same_all(own, at) for at in found)
        for place, found in zip(places, read, strict=True)
    )


def _read(value: Expr, buffer: Var, body: Block, ctx: Context) -> list[Place]:
    """Where ``value`` reads ``buffer``, by the names of ``body``, too."""
    value = inlined(value, values_of(walk(body)))
    return [_inlined(load.indices, ctx) for load in loads(value) if load.source.same_as(buffer)]


def _inlined(indices: Sequence[Expr], ctx: Context) -> Place:
    return tuple(ctx.facts.inline(index) for index in indices)
