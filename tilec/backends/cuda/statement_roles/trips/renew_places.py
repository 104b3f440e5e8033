"""In loops whose fragments fill the registers, threads find their places in tiles anew in every trip.

The assembler computes what does not change from trip to trip once, and keeps it: dozens of addresses, for
which it spills sums of products, and serialises these.
"""

from __future__ import annotations

from dataclasses import replace

from tvm import tirx

from tilec.backends.cuda.device.exchange import ANEW
from tilec.backends.cuda.emit.context import DeviceContext
from tilec.backends.cuda.emit.statements import emit
from tilec.backends.cuda.nodes import Anew, WarpgroupProduct
from tilec.backends.cuda.statement_roles.split.registers import fits_registers
from tilec.ir.nodes import For, Launch, Stmt, children, walk, with_children
from tilec.ir.nodes.barriers import Group
from tilec.lowering.emission.statements import sequence
from tilec.lowering.passes.base import LaunchPass


class RenewPlaces(LaunchPass):
    """In: loops of groups. Out: the bodies of those that multiply by wgmma, and name more fragments than
    registers hold at once, in an Anew."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with its loops."""
        return replace(launch, body=tuple(map(_group, launch.body)))


def _group(stmt: Stmt) -> Stmt:
    return _renewed(stmt, stmt) if isinstance(stmt, Group) else stmt


def _renewed(stmt: Stmt, group: Group) -> Stmt:
    if isinstance(stmt, For) and any(isinstance(inner, WarpgroupProduct) for inner in stmt.body):
        return stmt if fits_registers(stmt.body, group) else replace(stmt, body=(Anew(stmt.body),))
    if not any(isinstance(inner, WarpgroupProduct) for inner in walk((stmt,))):
        return stmt
    return with_children(stmt, [tuple(_renewed(inner, group) for inner in part) for part in children(stmt)])


@emit.register(Anew)
def _emit_anew(stmt: Anew, ctx: DeviceContext) -> tirx.Stmt | None:
    before = [ctx.lane, ctx.warp] if stmt.warp else [ctx.lane]
    made = [ctx.fresh(name, "int32") for name in ("lane", "warp")[: len(before)]]
    ctx.lane, ctx.warp = (*made, ctx.warp)[:2]
    try:
        inner = ctx.block(stmt.body)
    finally:
        ctx.lane, ctx.warp = (*before, ctx.warp)[:2]
    binds = [tirx.Bind(new, ANEW.call(old)) for new, old in zip(made, before, strict=True)]
    return None if inner is None else sequence([*binds, inner])
