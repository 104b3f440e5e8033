"""First operands that threads make in registers are made step by step along K, beside the products of the
steps before.

    W = float16(raw); C += W B    ->    W0 = float16(raw0); C += W0 B0; W1 = float16(raw1); C += W1 B1; ...

It pays where threads take less time for a step than tensor cores for its product. Products of 256 columns run
as long as threads take for most operands, in two steps: four wait too often. Those of 128 run as long as they
take for floats, of which one instruction converts two, in steps of the instruction. H200, beside a plain
product: 128 x 128 sums, 8-bit floats 0.95 in steps, 0.90 at once, integers of 8 bits 0.82 either way; two
such tiles, at once, in four steps and in two: scaled in registers 0.88, 0.87 and 0.91, integers of 8 bits
1.02, 1.04 and 1.03, of 4 bits 0.92, 0.85 and 0.93, words 0.87, 0.83 and 0.86; scaled where they lie 0.81 at
once, 0.86 in two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import TensorLoad

from tilec.backends.cuda.analysis.layouts.tiles import is_whole, static_extents, whole_tile
from tilec.backends.cuda.analysis.products.wgmma import STEP_BYTES, Chooser
from tilec.backends.cuda.nodes import GiveBack
from tilec.backends.cuda.statement_roles.operands.alternate_operands import loops_of_groups
from tilec.ir.analysis.renaming import copied
from tilec.ir.exprs import dtype_of, int_value, same_all, transform
from tilec.ir.nodes import (
    Alloc,
    Assume,
    Bind,
    Block,
    Copy,
    For,
    Gemm,
    Launch,
    Parallel,
    Region,
    Stmt,
    Store,
    walk,
)
from tilec.ir.nodes.barriers import Group, WaitPhase
from tilec.ir.traits import buffers, loads_of, written
from tilec.lowering.analysis.roads import with_notes
from tilec.lowering.analysis.uses import sets_variable, uses_itself
from tilec.lowering.emission.storage import element_bytes
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks
from tilec.lowering.passes.expand_copies import expand_copy
from tilec.lowering.rewrite import map_block

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

#: What may stand between the makers of an operand and the product.
_BETWEEN = (Alloc, Assume, Bind, GiveBack, WaitPhase)
#: Columns of a product that runs as long as threads take for most steps, and its steps.
_WIDE, _STEPS = 256, 2
_NOTE = "{} is made in {} steps, each beside the products of those before"


class MakeInSteps(LaunchPass):
    """In: loops of consumers that compute a fragment of 16 bits element by element for their only product, of
    wgmma, of 256 columns where they do more than convert floats. Out: a fragment and a product for each step
    along K, in turns."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with its steps; one without rings as it is."""
        chooser = Chooser(launch, None)
        found = [
            trip
            for group, loop in loops_of_groups(launch)
            if (trip := _trip(loop, group, launch, chooser)) is not None
        ]
        if not found:
            return launch
        made = _with_steps(launch, found)
        return with_notes(made, [_NOTE.format(trip.product.a.buffer.name, trip.steps) for trip in found])


@dataclass(frozen=True)
class _Trip:
    """The body of a ``loop``: what stands ``ahead`` of the ``makers`` of an operand and the ``product`` that
    takes it, and ``behind`` it."""

    loop: For
    ahead: Block
    makers: tuple[Parallel, ...]
    product: Gemm
    behind: Block

    @property
    def steps(self) -> int:
        """Steps along K: of the instruction, or few of them."""
        tile = self.product.a.buffer
        steps = static_extents(tile)[1] * element_bytes(str(tile.dtype)) // STEP_BYTES
        return _STEPS if self.is_wide and steps % _STEPS == 0 else steps

    @property
    def is_wide(self) -> bool:
        """Whether the product runs long."""
        return static_extents(self.product.c.buffer)[1] >= _WIDE

    @property
    def width(self) -> int:
        """Columns of a step."""
        return static_extents(self.product.a.buffer)[1] // self.steps

    def fragments(self) -> list[Var]:
        """What the makers write."""
        return list(dict.fromkeys(_store(loop).buffer for loop in self.makers))

    def in_steps(self, parts: Mapping[Var, Sequence[Var]]) -> Iterator[Stmt]:
        """The body with fragments of each step."""
        beside = [stmt for place, stmt in enumerate(self.ahead) if self._is_for_later(place)]
        yield from (stmt for stmt in self.ahead if stmt not in beside)
        for step in range(self.steps):
            own = {tile: parts[tile][step] for tile in self.fragments()}
            yield from copied(tuple(self._maker(loop, step, own) for loop in self.makers))
            yield self._product(step, own)
            yield from () if step else beside
        yield from self.behind

    def _is_for_later(self, place: int) -> bool:
        """Whether a statement in front of the makers reads of tensors what this trip does not need: it goes
        beside the product of the first step (behind that of the last one the assembler leaves it to the
        wait)."""
        stmt, others = self.ahead[place], (*self.ahead[place + 1 :], *self.makers, self.product, *self.behind)
        if not isinstance(stmt, Parallel):
            return False
        read = list(loads_of(*walk((stmt,))))
        made = {buffer for inner in walk((stmt,)) for buffer in written(inner)}
        needed = {buffer for other in walk(others) for buffer in buffers(other)}
        return bool(read) and all(load.source.scope() == "global" for load in read) and not made & needed

    def _maker(self, loop: Parallel, step: int, own: Mapping[Var, Var]) -> Parallel:
        """A loop over the columns of a step."""
        row, column = loop.vars
        inside = tirx.Var(str(column.name), dtype_of(column))
        place = inside + tirx.const(step * self.width, dtype_of(column))

        def moved(node: Expr) -> Expr | None:
            if isinstance(node, TensorLoad) and node.source in own:
                return tirx.BufferLoad(own[node.source], [row, inside])
            return place if node.same_as(column) else None

        *names, store = loop.body
        assert isinstance(store, Store)
        made = Store(own[store.buffer], (row, inside), transform(store.value, moved), loc=store.loc)
        body = (*map_block(tuple(names), lambda value: transform(value, moved)), made)
        return replace(loop, vars=(row, inside), extents=(loop.extents[0], self.width), body=body)

    def _product(self, step: int, own: Mapping[Var, Var]) -> Gemm:
        """The product of a step."""
        product, axis = self.product, -1 if self.product.trans_b else -2
        start, extent = list(product.b.start), list(product.b.extent)
        start[axis], extent[axis] = start[axis] + step * self.width, self.width
        clear = tirx.const(False, "bool") if step else product.clear
        b = Region(product.b.buffer, tuple(start), tuple(extent))
        return replace(product, a=whole_tile(own[product.a.buffer]), b=b, clear=clear)


def _with_steps(launch: Launch, found: Sequence[_Trip]) -> Launch:
    """The launch with the steps of its loops, and with their fragments."""
    parts = {tile: _parts(tile, trip.steps) for trip in found for tile in trip.fragments()}

    def loops(block: Block) -> list[Stmt]:
        trips = [next((trip for trip in found if trip.loop is stmt), None) for stmt in block]
        return [
            stmt if trip is None else replace(trip.loop, body=tuple(trip.in_steps(parts)))
            for stmt, trip in zip(block, trips, strict=True)
        ]

    def fragments(block: Block) -> list[Stmt]:
        made = [parts.get(stmt.buffer) if isinstance(stmt, Alloc) else None for stmt in block]
        pairs = zip(block, made, strict=True)
        return [each for stmt, own in pairs for each in ((stmt,) if own is None else map(Alloc, own))]

    return replace(launch, body=rewrite_blocks(rewrite_blocks(launch.body, loops), fragments))


def _parts(tile: Var, steps: int) -> list[Var]:
    """A fragment for each step of one."""
    rows, columns = static_extents(tile)
    return [
        tirx.decl_buffer(
            (rows, columns // steps), str(tile.dtype), name=f"{tile.name}_{step}", scope="local.fragment"
        )
        for step in range(steps)
    ]


def _trip(loop: For, group: Group, launch: Launch, chooser: Chooser) -> _Trip | None:
    """The parts of a loop that makes its operand; None for any other one."""
    products = [stmt for stmt in walk(loop.body) if isinstance(stmt, Gemm)]
    if len(products) != 1 or products[0] not in loop.body:
        return None
    (product,) = products
    if not chooser.takes_in(product, group) or not _is_operand(product):
        return None
    place = loop.body.index(product)
    ahead: list[Stmt] = []
    makers: list[Parallel] = []
    gives: list[Stmt] = []
    for stmt in loop.body[:place]:
        each = expand_copy(stmt) if isinstance(stmt, Copy) else stmt
        if isinstance(each, Parallel) and (makers or len(each.vars) == 2):
            makers.append(each)
        elif isinstance(each, Parallel):
            ahead.append(each)
        elif not isinstance(each, _BETWEEN) and not sets_variable(each):
            return None
        else:
            (gives if isinstance(each, GiveBack) and makers else ahead).append(each)
    trip = _Trip(loop, tuple(ahead), tuple(makers), product, (*gives, *loop.body[place + 1 :]))
    return trip if trip.steps > 1 and _makes(trip, launch) else None


def _is_operand(product: Gemm) -> bool:
    """Whether a product takes a whole fragment of 16 bits."""
    tile = product.a.buffer
    held = tile.scope() == "local.fragment" and is_whole(product.a) and not product.trans_a
    return held and element_bytes(str(tile.dtype)) == 2 and len(tile.shape) == 2


def _makes(trip: _Trip, launch: Launch) -> bool:
    """Whether the makers compute the operand, and fragments that nothing else uses, element by element."""
    tile = trip.product.a.buffer
    if not all(_is_plain(loop) for loop in trip.makers):
        return False
    own = trip.fragments()
    users = sum(uses_itself(stmt, each) for stmt in walk(launch.body) for each in own)
    inside = sum(uses_itself(stmt, each) for stmt in (*walk(trip.makers), trip.product) for each in own)
    pays = trip.is_wide or all(map(_converts, trip.makers))
    return (
        tile in own
        and users == inside
        and pays
        and all(_is_own(loop, static_extents(tile), own) for loop in trip.makers)
    )


def _store(loop: Parallel) -> Store:
    """What a loop does last in each iteration."""
    store = loop.body[-1]
    assert isinstance(store, Store)
    return store


def _is_plain(loop: Parallel) -> bool:
    """Whether a loop computes names and stores one element."""
    return isinstance(loop.body[-1], Store) and all(isinstance(stmt, Bind) for stmt in loop.body[:-1])


def _converts(loop: Parallel) -> bool:
    """Whether a loop stores floats of a tile as they are or converted."""
    value = _store(loop).value
    value = value.value if isinstance(value, tirx.Cast) else value
    return isinstance(value, TensorLoad) and "float" in dtype_of(value)


def _is_own(loop: Parallel, shape: tuple[int, ...], own: Sequence[Var]) -> bool:
    """Whether an iteration stores its element of a fragment, and reads others of ``own`` at that element."""
    store = _store(loop)
    read = [load.indices for load in loads_of(*loop.body)
            if load.source in own]  # fmt: skip
    extents = tuple(int_value(extent) for extent in loop.extents)
    return (
        extents == shape == static_extents(store.buffer)
        and store.buffer.scope() == "local.fragment"
        and all(same_all(tuple(place), loop.vars) for place in (store.indices, *read))
    )
