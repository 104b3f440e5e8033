"""How the statements of `tilec.backends.cuda.attention.nodes` look in tile IR text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilec.backends.cuda.attention.nodes import (
    AsyncProduct,
    AttentionRoles,
    BoxStore,
    JoinLanes,
    LaneSums,
    LaunchDependents,
    PairLoop,
    ProductsWait,
    RingPut,
    RingRelease,
    RingWait,
    RowMask,
    Turn,
    ZeroRows,
)
from tilec.backends.cuda.warp_roles.text import print_roles
from tilec.ir.text.printer import format_layout, register

if TYPE_CHECKING:
    from tilec.ir.text.printer import Printer


@register(AttentionRoles)
def _streamed(out: Printer, stmt: AttentionRoles) -> None:
    order, roles = stmt.order, stmt.roles
    if order.longest is None:
        out.line("take_tiles()")
    else:
        counter = "" if order.counter is None else f", counter={out.name(order.counter)}"
        out.line(f"take_tiles(longest={order.longest}, section={out.expr(order.section)}{counter})")
    for ring in stmt.rings:
        out.line(
            f"{out.name(ring.stage)} = ring({out.name(ring.tile)}, stages={ring.stages}, bytes={ring.bytes})"
        )
    print_roles(out, roles, stmt.producer, stmt.consumer, _flags(stmt))


def _flags(stmt: AttentionRoles) -> str:
    return ", ".join(f"{name}=True" for name in ("turns", "alone") if getattr(stmt, name))


@register(RingPut)
def _put(out: Printer, stmt: RingPut) -> None:
    out.nest(f"with ring_put({out.name(stmt.ring.tile)}):", stmt.body)


@register(RingWait)
def _ring_wait(out: Printer, stmt: RingWait) -> None:
    out.line(f"ring_wait({out.name(stmt.ring.tile)})")


@register(RingRelease)
def _release(out: Printer, stmt: RingRelease) -> None:
    flags = "".join(f", {name}=True" for name in ("stored", "meets") if getattr(stmt, name))
    out.line(f"ring_release({out.name(stmt.ring.tile)}{flags})")


@register(AsyncProduct)
def _product(out: Printer, stmt: AsyncProduct) -> None:
    parts = [
        *(out.region(region) for region in (stmt.a, stmt.b, stmt.c)),
        *(f"{name}=True" for name in ("trans_a", "trans_b") if getattr(stmt, name)),
        f"clear={out.expr(stmt.clear)}",
        f'"{stmt.tile.instruction}.{stmt.types}"',
        f"steps={stmt.tile.steps}",
    ]
    out.line(f"async_product({', '.join(parts)})")


@register(ProductsWait)
def _products_wait(out: Printer, stmt: ProductsWait) -> None:
    sums = ", ".join(out.region(region) for region in stmt.sums)
    out.line(f"products_wait({stmt.pending}, {sums})")


@register(Turn)
def _turn(out: Printer, stmt: Turn) -> None:
    out.line("take_turn()" if stmt.begin else "pass_turn()")


@register(ZeroRows)
def _zero_rows(out: Printer, stmt: ZeroRows) -> None:
    out.nest(f"for {out.name(stmt.row)} in zero_rows({out.region(stmt.tile)}):", stmt.body)


@register(RowMask)
def _row_mask(out: Printer, stmt: RowMask) -> None:
    out.nest(
        f"for {out.name(stmt.row)} in row_mask({out.region(stmt.tile)}, {out.expr(stmt.other)}):", stmt.body
    )


@register(BoxStore)
def _store(out: Printer, stmt: BoxStore) -> None:
    start = ", ".join(out.expr(index) for index in stmt.start)
    box = f"box={stmt.map.box}, swizzle={stmt.map.swizzle}"
    target = f"{out.name(stmt.map.buffer)}[{start}]"
    out.line(f"box_store({out.region(stmt.src)}, {target}, {box}, staging={out.name(stmt.staging)})")


@register(PairLoop)
def _pairs(out: Printer, stmt: PairLoop) -> None:
    names = ", ".join(out.name(var) for var in stmt.vars)
    extents = ", ".join(str(extent) for extent in stmt.extents)
    out.nest(f'for {names} in thread_pairs({extents}, layout="{format_layout(stmt.layout)}"):', stmt.body)


@register(LaneSums)
def _lane_sums(out: Printer, stmt: LaneSums) -> None:
    out.line(f"lane_sums({out.region(stmt.src)}, {out.region(stmt.dst)}, axis={stmt.axis})")


@register(JoinLanes)
def _join(out: Printer, stmt: JoinLanes) -> None:
    out.line(f"join_lanes({out.region(stmt.sums)}, over={out.region(stmt.over)}, axis={stmt.axis})")


@register(LaunchDependents)
def _launch_dependents(out: Printer, stmt: LaunchDependents) -> None:
    out.line("launch_dependents()")
