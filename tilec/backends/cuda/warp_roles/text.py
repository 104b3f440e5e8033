"""How the statements of `tilec.backends.cuda.warp_roles.nodes` look in tile IR text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilec.backends.cuda.warp_roles.nodes import (
    GatherLoad,
    MatrixView,
    Proceed,
    RingDrain,
    RingFill,
    Specialised,
    SumParts,
    TensorMap,
    TileStore,
    TmaLoad,
    WarpgroupGemm,
    WindowCopy,
)
from tilec.ir.text.printer import register

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tvm.ir import Expr

    from tilec.backends.cuda.warp_roles.nodes import Roles, Window
    from tilec.ir.nodes import Block
    from tilec.ir.text.printer import Printer


@register(Specialised)
def _specialised(out: Printer, stmt: Specialised) -> None:
    order, roles = stmt.order, stmt.roles
    pair = "" if order.pair is None else f", pair={order.pair}"
    pair += ", crosses=True" if order.crosses else ""
    pair += f", split={order.split}" if order.split > 1 else ""
    out.line(f"walk_tiles(axis={order.axis}, band={order.band}{pair})")
    print_roles(out, roles, stmt.producer, stmt.consumer, "pingpong=True" if roles.pingpong else "")


def print_roles(out: Printer, roles: Roles, producer: Block, consumer: Block, *options: str) -> None:
    """What the producer and the consumers do, with the registers that they keep."""
    registers = ("", "") if roles.registers is None else tuple(f"registers={n}" for n in roles.registers)
    out.nest(f"with producer({registers[0]}):", producer)
    parts = (f"warpgroups={roles.consumers}", registers[1], *options)
    out.nest(f"with consumers({', '.join(part for part in parts if part)}):", consumer)


@register(Proceed)
def _proceed(out: Printer, stmt: Proceed) -> None:
    out.line(f"proceed({out.expr(stmt.cond)})")


@register(RingFill)
def _fill(out: Printer, stmt: RingFill) -> None:
    names = f"{out.name(stmt.var)}, {out.name(stmt.stage)}"
    bounds = f"{out.expr(stmt.start)}, {out.expr(stmt.stop)}"
    out.nest(
        f"for {names} in ring_fill({bounds}, stages={stmt.ring.stages}, bytes={stmt.ring.bytes}):", stmt.body
    )


@register(RingDrain)
def _drain(out: Printer, stmt: RingDrain) -> None:
    options = "".join(
        f", {name}"
        for name, given in (("unroll=1", not stmt.unrolled), ("promotes=True", stmt.promotes))
        if given
    )
    out.nest(f"for {out.name(stmt.stage)} in ring_drain({out.expr(stmt.trips)}{options}):", stmt.body)


@register(TmaLoad)
def _load(out: Printer, stmt: TmaLoad) -> None:
    start = ", ".join(out.expr(index) for index in stmt.start)
    shared = (", shared=True" if stmt.shared else "") + _evict(stmt.evict)
    shared += ", early=True" if stmt.early else ""
    moved = f", offsets={_tuple(out, stmt.offsets)}" if stmt.offsets else ""
    out.line(
        f"tma_load({out.name(stmt.map.buffer)}[{start}], {out.region(stmt.dst)},"
        f" {_box(stmt.map)}{moved}{shared})"
    )


@register(MatrixView)
def _view(out: Printer, stmt: MatrixView) -> None:
    shape = _tuple(out, stmt.view.shape)
    out.line(f"{out.name(stmt.view)} = matrix_view({out.name(stmt.root)}, {shape})")


@register(WindowCopy)
def _window_copy(out: Printer, stmt: WindowCopy) -> None:
    moved = f"offsets={_tuple(out, stmt.offsets)}"
    out.line(f"window_copy({out.region(stmt.src)}, {out.region(stmt.dst)}, {moved}, {_window(stmt.window)})")


@register(GatherLoad)
def _gather(out: Printer, stmt: GatherLoad) -> None:
    start = ", ".join(out.expr(index) for index in stmt.start)
    out.line(f"gather_load({out.name(stmt.src)}[{start}], {out.region(stmt.dst)})")


@register(WarpgroupGemm)
def _product(out: Printer, stmt: WarpgroupGemm) -> None:
    tile = stmt.tile
    parts = [
        *(out.region(region) for region in (stmt.a, stmt.b, stmt.c)),
        *(f"{name}=True" for name in ("trans_a", "trans_b") if getattr(stmt, name)),
        f'"m64n{tile.columns}.{tile.types}"',
        f"rows={tile.rows}",
        f"steps={tile.steps}",
    ]
    out.line(f"warpgroup_gemm({', '.join(parts)})")


@register(TileStore)
def _store(out: Printer, stmt: TileStore) -> None:
    names = ", ".join(out.name(var) for var in stmt.vars)
    extents = ", ".join(str(extent) for extent in stmt.extents)
    staged = "" if stmt.map is None else f", {_box(stmt.map)}, columns={stmt.columns}, buffers={stmt.buffers}"
    staged += (", turned=True" if stmt.turned else "") + _evict(stmt.evict)
    staged += "" if stmt.residual is None else f", residual={out.name(stmt.residual.buffer)}"
    staged += f", parts={stmt.parts}" if stmt.parts > 1 else ""
    out.nest(f"for {names} in tile_store({extents}{staged}):", stmt.body)


@register(SumParts)
def _parts(out: Printer, stmt: SumParts) -> None:
    out.line(f"sum_parts({out.name(stmt.fragment)}, parts={stmt.parts})")


def _evict(when: str | None) -> str:
    return "" if when is None else f', evict="{when}"'


def _box(found: TensorMap) -> str:
    window = "" if found.window is None else f", {_window(found.window)}"
    return f"box={found.box}, swizzle={found.swizzle}{window}"


def _window(window: Window) -> str:
    return f"lower={window.lower}, upper={window.upper}, steps={window.steps}"


def _tuple(out: Printer, values: Iterable[Expr]) -> str:
    return f"({', '.join(out.expr(value) for value in values)})"
