"""How the statements of `tilec.backends.cuda.matmul.nodes` look in tile IR text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilec.backends.cuda.matmul.nodes import (
    GatherLoad,
    MatmulRoles,
    MatrixView,
    Proceed,
    RingDrain,
    RingFill,
    SumParts,
    WarpgroupGemm,
    WindowCopy,
)
from tilec.backends.cuda.warp_roles.text import print_roles, tuple_text, window_text
from tilec.ir.text.printer import register

if TYPE_CHECKING:
    from tilec.ir.text.printer import Printer


@register(MatmulRoles)
def _roles(out: Printer, stmt: MatmulRoles) -> None:
    order, roles = stmt.order, stmt.roles
    pair = "" if order.pair is None else f", pair={order.pair}"
    pair += ", crosses=True" if order.crosses else ""
    pair += f", split={order.split}" if order.split > 1 else ""
    out.line(f"walk_tiles(axis={order.axis}, band={order.band}{pair})")
    print_roles(out, roles, stmt.producer, stmt.consumer, "pingpong=True" if roles.pingpong else "")


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


@register(MatrixView)
def _view(out: Printer, stmt: MatrixView) -> None:
    shape = tuple_text(out, stmt.view.shape)
    out.line(f"{out.name(stmt.view)} = matrix_view({out.name(stmt.root)}, {shape})")


@register(WindowCopy)
def _window_copy(out: Printer, stmt: WindowCopy) -> None:
    moved = f"offsets={tuple_text(out, stmt.offsets)}"
    out.line(
        f"window_copy({out.region(stmt.src)}, {out.region(stmt.dst)}, {moved}, {window_text(stmt.window)})"
    )


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


@register(SumParts)
def _parts(out: Printer, stmt: SumParts) -> None:
    out.line(f"sum_parts({out.name(stmt.fragment)}, parts={stmt.parts})")
