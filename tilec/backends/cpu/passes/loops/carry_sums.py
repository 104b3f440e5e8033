"""Sums that loops around a Parallel add to its elements are kept in registers.

    for c in serial(0, 16): for i in parallel(128): y[i] = y[i] + X[c, i] * W[c]
    ->
    for i in parallel(128): s = y[i]; for c in serial(0, 16): s = s + X[c, i] * W[c]; y[i] = s

Each trip would read and write the tile otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.ir.analysis.known_trips import known_trips
from tilec.ir.analysis.scalar_code import is_scalar_code
from tilec.ir.exprs import inlined, int_value, linear_in, loads, reads, transform, uses
from tilec.ir.nodes import (
    Alloc,
    Block,
    For,
    Launch,
    Parallel,
    Stmt,
    Store,
    children,
    is_global,
    walk,
    with_children,
)
from tilec.ir.nodes.threads import PER_THREAD
from tilec.ir.traits import Rewriter, defined
from tilec.lowering.analysis.accesses import accesses, long_vars, share_elements, values_of
from tilec.lowering.analysis.accumulations import find_accumulations
from tilec.lowering.analysis.uses import written_in
from tilec.lowering.passes.base import LaunchPass

if TYPE_CHECKING:
    from tvm.ir import Expr, TensorLoad, Var

#: Trips below which an element is hardly brought back and forth.
_FEW = 8


class CarrySums(LaunchPass):
    """In: loops over nothing but a Parallel whose iterations each add to an element of a tile. Out: the
    Parallel around as many of them as may go inside, which add up in a local.var. It is left as it is where
    each element of a tensor is read once, iterations reading neighbours: these are read in their order."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with such loops inside."""
        return replace(launch, body=_carrying(launch.body))


def _carrying(block: Block) -> Block:
    """A block with such loops turned, the outermost ones first."""
    return tuple(map(_turned, block))


def _turned(stmt: Stmt) -> Stmt:
    loops = _nested(stmt)
    inner = loops[-1].body[0] if loops and len(loops[-1].body) == 1 else None
    if not isinstance(inner, Parallel) or not _may_turn(loops, inner):
        return with_children(stmt, [_carrying(block) for block in children(stmt)])
    items = [item for item in accesses(inner.body) if item.buffer in _results(inner)]
    carried = {item.buffer: _variable(item.buffer) for item in items}
    elements = {item.buffer: item.indices for item in items}
    body = _Carried(carried).block(inner.body)
    for each in reversed(loops):
        body = (replace(each, body=body),)
    before, after = [], []
    zero = (tirx.const(0, "int32"),)
    for tile, variable in carried.items():
        element = tirx.BufferLoad(tile, list(elements[tile]))
        before += [Alloc(variable, loc=inner.loc), Store(variable, zero, element, loc=inner.loc)]
        after.append(Store(tile, elements[tile], tirx.BufferLoad(variable, list(zero)), loc=inner.loc))
    return replace(inner, body=(*before, *body, *after))


def _nested(stmt: Stmt) -> list[For]:
    """A loop and those inside that it consists of."""
    if not isinstance(stmt, For):
        return []
    return [stmt, *_nested(stmt.body[0])] if len(stmt.body) == 1 else [stmt]


def _variable(tile: Var) -> Var:
    return tirx.decl_buffer((1,), str(tile.dtype), str(tile.name), scope="local.var")


def _results(loop: Parallel) -> set[Var]:
    """The buffers that a Parallel writes, but for what its iterations have for themselves."""
    return written_in(loop.body) - {var for stmt in walk(loop.body) for var in defined(stmt)}


def _may_turn(loops: Sequence[For], inner: Parallel) -> bool:
    """Whether an iteration meets elements of its own alone, in all trips the same ones, and reads others more
    than once."""
    made, counted = _results(inner), [loop.var for loop in loops]
    bounds = [bound for loop in loops for bound in (loop.start, loop.stop, loop.step)]
    sizes = [extent for extent in inner.extents if not isinstance(extent, int)]
    trips = [known_trips(loop) for loop in loops]
    return (
        not inner.hints.given
        and is_scalar_code(inner.body)
        and _adds(loops[-1], inner, made)
        and not any(reads(bound, made) for bound in bounds)
        and not any(uses(size, counted) for size in sizes)
        and prod(_FEW if each is None else len(each) for each in trips) >= _FEW
        and all(_is_own(tile, counted, inner) for tile in made)
        and _reads_again(loops, inner, made)
    )


def _adds(loop: For, inner: Parallel, made: set[Var]) -> bool:
    """Whether an iteration, or a loop in it, adds to one of its results in all trips of a loop."""
    bodies = [inner.body, *(stmt.body for stmt in walk(inner.body) if isinstance(stmt, For))]
    return any(item.store.buffer in made for body in bodies for item in find_accumulations(body, loop.var))


def _is_own(tile: Var, counted: Sequence[Var], inner: Parallel) -> bool:
    """Whether an iteration, and no other one, meets one element of a tile whatever the trip is."""
    items = [item for item in accesses(inner.body) if item.buffer.same_as(tile)]
    inside = [*counted, *(var for stmt in walk(inner.body) for var in defined(stmt))]
    moves = any(uses(index, inside) or next(loads(index), None) is not None for index in items[0].indices)
    return not is_global(tile) and not moves and share_elements(items, long_vars(inner))


def _reads_again(loops: Sequence[For], inner: Parallel, made: set[Var]) -> bool:
    """Whether no tensor has each of its elements read once."""
    names, counted = values_of(walk(inner.body)), [loop.var for loop in loops]
    items = [item for item in accesses(inner.body) if item.buffer not in made and not item.is_write]
    return not any(
        _is_once([inlined(index, names) for index in item.indices], counted, inner)
        for item in items
        if item.buffer.scope() not in PER_THREAD
    )


def _is_once(indices: Sequence[Expr], counted: Sequence[Var], inner: Parallel) -> bool:
    """Whether all variables tell which element it is, those of trips from elements that lie apart and not
    beside each other."""
    variables = (*counted, *long_vars(inner))
    told = all(any(uses(index, (var,)) for index in indices) for var in variables)
    beside = uses(indices[-1], counted) and not uses(indices[-1], long_vars(inner))
    return told and not beside and not any(_meet(index, counted, inner) for index in indices)


def _meet(index: Expr, counted: Sequence[Var], inner: Parallel) -> bool:
    """Whether iterations of a trip read along an index what those of others do, as windows have it: also
    where they count parts of them."""
    if isinstance(index, tirx.FloorDiv) and int_value(index.b):
        return _meet(index.a, counted, inner)
    factors = [int_value(factor) or 0 for factor in linear_in(index, [*counted, *inner.vars])[:-1]]
    if not factors:
        return False
    steps, own = factors[: len(counted)], factors[len(counted) :]
    lengths = (int_value(extent) or 1 for extent in inner.extents)
    reach = sum(abs(factor) * (length - 1) for factor, length in zip(own, lengths, strict=True))
    return any(step and abs(step) <= reach for step in steps)


class _Carried(Rewriter):
    """Statements over variables in the place of elements."""

    def __init__(self, variables: Mapping[Var, Var]) -> None:
        super().__init__()
        self._variables = variables

    def expr(self, expr: Expr) -> Expr:
        """With elements read from the variables."""
        return transform(expr, self._read)

    def element(self, buffer: Var, indices: tuple[Expr, ...]) -> tuple[Var, tuple[Expr, ...]]:
        """The variable of an element."""
        variable = self._variables.get(buffer)
        return (buffer, indices) if variable is None else (variable, (tirx.const(0, "int32"),))

    def _read(self, node: Expr) -> TensorLoad | None:
        variable = self._variables.get(getattr(node, "source", None))
        return None if variable is None else tirx.BufferLoad(variable, [tirx.const(0, "int32")])
