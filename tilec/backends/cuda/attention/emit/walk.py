"""How persistent blocks take tiles: the producer decides, consumers read coordinates from shared memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.tirx.script import builder as T

from tilec.backends.cuda.attention.emit.context import AttentionContext
from tilec.backends.cuda.attention.nodes import AttentionOrder
from tilec.backends.cuda.device.exchange import GRID_BLOCKS
from tilec.backends.cuda.warp_roles.emit.barriers import arrive
from tilec.backends.cuda.warp_roles.emit.build import (
    cell,
    i32,
    let,
    ptx,
    put,
    registers,
    run,
    tile_count,
    u32,
    when,
)
from tilec.backends.cuda.warp_roles.emit.position import Position
from tilec.ir.exprs import cast_to
from tilec.ir.nodes import Launch
from tilec.lowering.emission.parameters import spelled

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.ir.nodes import Kernel

#: Tiles whose coordinates may wait for consumers, and bytes of one.
SLOTS, SLOT_BYTES = 2, 16


class Mailbox:
    """The ring of tile coordinates, as one role sees it: slot and parity of the round."""

    def __init__(self, ctx: AttentionContext) -> None:
        self._ctx, self._at = ctx, Position(SLOTS, ahead=True)
        self._barriers = ctx.barriers("orders", SLOTS)

    def _word(self, number: int) -> Expr:
        first = self._ctx.named_place("coordinates", 4 * number)
        return first + u32(self._at.stage) * u32(SLOT_BYTES)

    def post(self, values: list[Expr]) -> None:
        """By the producer's thread: coordinates of the next tile, -1 for no more."""
        run(T.cuda.mbarrier_wait(self._barriers.empty(self._at.stage), self._at.other_parity))
        for number, value in enumerate(values):
            ptx("st.shared.b32", self._word(number), u32(value))
        arrive(self._barriers.full(self._at.stage))
        self._at.advance()

    def take(self, cells: list[Var]) -> None:
        """By every consumer thread: the coordinates to ``cells``. Each thread gives the slot back for itself:
        that a warp has met, the assembler knows and leaves no trace of for tools that look for races."""
        run(T.cuda.mbarrier_wait(self._barriers.full(self._at.stage), self._at.parity))
        for number, held in enumerate(cells):
            word = registers(1, "uint32")
            ptx("ld.shared.b32", word[0], self._word(number))
            put(held, tirx.Cast("int32", word[0]))
        arrive(self._barriers.empty(self._at.stage))
        self._at.advance()


def produce(
    kernel: Kernel,
    launch: Launch,
    order: AttentionOrder,
    extents: list[Var],
    block: Var,
    ctx: AttentionContext,
    body: Callable[[], None],
) -> None:
    """``body`` for every tile of this block, by the producer's thread."""
    mailbox = Mailbox(ctx)
    total, blocks = let("total", tile_count(extents)), let("blocks", GRID_BLOCKS.call())
    section = let("section", _section(kernel, order, ctx)) if order.has_sections else None
    tile = cell(block)
    with T.While(tile[0] < total):
        coordinates = [cell(place)[0] for place in _places(let("tile", tile[0]), extents, section, order)]
        mailbox.post(coordinates)
        ctx.env.update(zip(launch.block_vars, coordinates, strict=True))
        body()
        _take_next(order, tile, total, blocks, ctx)
    mailbox.post([i32(-1)] * len(launch.block_vars))


def consume(launch: Launch, ctx: AttentionContext, body: Callable[[], None]) -> None:
    """``body`` for every tile of this block, by the consumers."""
    mailbox = Mailbox(ctx)
    cells = [cell(0) for _ in launch.block_vars]
    ctx.env.update({var: held[0] for var, held in zip(launch.block_vars, cells, strict=True)})
    mailbox.take(cells)
    with T.While(cells[0][0] >= 0):
        body()
        mailbox.take(cells)


def _section(kernel: Kernel, order: AttentionOrder, ctx: AttentionContext) -> Expr:
    value = spelled(order.section, kernel)
    found = i32(value) if isinstance(value, int) else ctx.value(value)
    return cast_to(found, "int32")


def wait_if_few(order: AttentionOrder, extents: list[Var]) -> None:
    """By all threads: of few tiles there is no launch in front that has waited for what a caller launched."""
    with when(_are_few(order, tile_count(extents))):
        ptx("griddepcontrol.wait")


def _are_few(order: AttentionOrder, total: Expr) -> Expr:
    return total <= i32(order.few)


def _take_next(order: AttentionOrder, tile: Var, total: Expr, blocks: Expr, ctx: AttentionContext) -> None:
    """The next tile of this block to ``tile``."""
    if order.counter is None:
        put(tile, tile[0] + blocks)
        return
    if not order.few:
        _take_counted(order.counter, tile, blocks, ctx)
        return
    with T.If(_are_few(order, total)):
        with T.Then():
            put(tile, tile[0] + blocks)
        with T.Else():
            _take_counted(order.counter, tile, blocks, ctx)


def _take_counted(counter: Var, tile: Var, blocks: Expr, ctx: AttentionContext) -> None:
    ptx("griddepcontrol.wait")  # the launch in front clears the counter
    taken = registers(1, "uint32")
    ptx("atom.global.add.u32", taken[0], T.address_of(ctx.storage(counter).data[0]), u32(1))
    put(tile, tirx.Cast("int32", taken[0]) + blocks)


def _places(tile: Var, extents: list[Var], section: Var | None, order: AttentionOrder) -> list[Expr]:
    """The grid coordinates of a tile number. With sections: positions of the other axes in groups, and inside
    of one the tiles with the most work of all its positions first. Positions that share a tile follow each
    other."""
    if section is None:
        inner = let("position", T.truncdiv(tile, extents[0]))
        return [tile - inner * extents[0], *_others(inner, extents)]
    positions = tile_count(extents[1:])
    size = let("section_tiles", extents[0] * T.min(section, positions))
    number = let("section_number", T.truncdiv(tile, size))
    inside = let("in_section", tile - number * size)
    width = let("section_width", T.min(section, positions - number * section))
    back = let("back", T.truncdiv(inside, width))
    position = let("position", number * section + (inside - back * width))
    if order.shared == 2:
        y = let("y", T.truncdiv(position, extents[2]))
        return [extents[0] - 1 - back, y, position - y * extents[2]]
    return [extents[0] - 1 - back, *_others(position, extents)]


def _others(position: Expr, extents: list[Var]) -> list[Expr]:
    """The coordinates of the axes behind the first."""
    if len(extents) < 3:
        return [position][: len(extents) - 1]
    z = let("z", T.truncdiv(position, extents[1]))
    return [position - z * extents[1], z]
