"""How the statements of `tilec.backends.cuda.warp_roles.nodes` look in tile IR text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilec.backends.cuda.warp_roles.nodes import TensorMap, TileStore, TmaLoad
from tilec.ir.text.printer import register

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tvm.ir import Expr

    from tilec.backends.cuda.warp_roles.nodes import Roles, Window
    from tilec.ir.nodes import Block
    from tilec.ir.text.printer import Printer


def print_roles(out: Printer, roles: Roles, producer: Block, consumer: Block, *options: str) -> None:
    """What the producer and the consumers do, with the registers that they keep."""
    registers = ("", "") if roles.registers is None else tuple(f"registers={n}" for n in roles.registers)
    out.nest(f"with producer({registers[0]}):", producer)
    parts = (f"warpgroups={roles.consumers}", registers[1], *options)
    out.nest(f"with consumers({', '.join(part for part in parts if part)}):", consumer)


@register(TmaLoad)
def _load(out: Printer, stmt: TmaLoad) -> None:
    start = ", ".join(out.expr(index) for index in stmt.start)
    shared = (", shared=True" if stmt.shared else "") + _evict(stmt.evict)
    shared += ", early=True" if stmt.early else ""
    moved = f", offsets={tuple_text(out, stmt.offsets)}" if stmt.offsets else ""
    out.line(
        f"tma_load({out.name(stmt.map.buffer)}[{start}], {out.region(stmt.dst)},"
        f" {box_text(stmt.map)}{moved}{shared})"
    )


@register(TileStore)
def _store(out: Printer, stmt: TileStore) -> None:
    names = ", ".join(out.name(var) for var in stmt.vars)
    extents = ", ".join(str(extent) for extent in stmt.extents)
    staged = (
        "" if stmt.map is None else f", {box_text(stmt.map)}, columns={stmt.columns}, buffers={stmt.buffers}"
    )
    staged += (", turned=True" if stmt.turned else "") + _evict(stmt.evict)
    staged += "" if stmt.residual is None else f", residual={out.name(stmt.residual.buffer)}"
    staged += f", parts={stmt.parts}" if stmt.parts > 1 else ""
    out.nest(f"for {names} in tile_store({extents}{staged}):", stmt.body)


def _evict(when: str | None) -> str:
    return "" if when is None else f', evict="{when}"'


def box_text(found: TensorMap) -> str:
    """The box of a tensor map."""
    window = "" if found.window is None else f", {window_text(found.window)}"
    return f"box={found.box}, swizzle={found.swizzle}{window}"


def window_text(window: Window) -> str:
    """The window of a map of image columns."""
    return f"lower={window.lower}, upper={window.upper}, steps={window.steps}"


def tuple_text(out: Printer, values: Iterable[Expr]) -> str:
    """Expressions as a tuple."""
    return f"({', '.join(out.expr(value) for value in values)})"
