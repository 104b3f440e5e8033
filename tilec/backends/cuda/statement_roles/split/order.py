"""In which order blocks take the tiles of a grid: one each, or one after the other in bands."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tvm.tirx.analysis import undefined_vars

from tilec.backends.cuda.analysis.trips.lone_branch import lone_branch
from tilec.backends.cuda.statement_roles.split.loads import filled, is_loop
from tilec.backends.cuda.statement_roles.split.registers import handed_on
from tilec.backends.cuda.statement_roles.split.slices import Program
from tilec.backends.cuda.warp_roles.nodes import WARPGROUP
from tilec.ir.exprs import int_value
from tilec.ir.nodes import LOOPS, PRODUCTS, Alloc, Assume, Bind, Block, For, If, Launch, Pipelined, Stmt, walk
from tilec.ir.nodes.barriers import AllocBarrier
from tilec.ir.traits import expressions
from tilec.lowering.emission.memory import tile_bytes

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

#: Blocks that take tiles at a time, as many as a usual device has multiprocessors. Tiles of a band with which
#: these load the least: H200, 8192^3, us for bands of 8 and 16: tiles of 128 x 128 1527 and 1580.
_BLOCKS = 132


def walks(launch: Launch, program: Program, threads: int, guarded: bool = False) -> bool:
    """Whether blocks stay and take tile after tile: where one block has a multiprocessor's registers to
    itself, so that its loads run ahead of its results, and all tiles take about as long; ``guarded``: those
    that pass the launch's guard. Blocks whose author names threads may wait for others: they come as the
    hardware has them."""
    if (
        launch.thread_vars
        or launch.schedule.persistent is False
        or handed_on(threads // WARPGROUP, ()) is None
    ):
        return False
    blocks = set(launch.block_vars)
    guard = guard_of(launch.body) if guarded else None
    control = (stmt for stmt in program.around if _takes_long(stmt) and stmt is not guard)
    phases = any(isinstance(stmt, AllocBarrier) for stmt in program.around)  # each tile would begin another
    return (
        not any(_depends_on(expr, program) & blocks for stmt in control for expr in expressions(stmt))
        and not launch.schedule.cluster_dims
        and not phases
    )


def guard_of(body: Block) -> If | None:
    """The branch that is all that a tile does but for names, which says whether it does anything; None where
    there is no such one."""
    return lone_branch(body, (Alloc, Assume, Bind))


def is_one_wave(launch: Launch) -> bool:
    """Whether a launch is known to have no more tiles than a usual device has multiprocessors."""
    extents = [extent if isinstance(extent, int) else int_value(extent) for extent in launch.grid]
    known = [extent for extent in extents if extent is not None]
    return len(known) == len(extents) and math.prod(known) <= _BLOCKS


def _takes_long(stmt: Stmt) -> bool:
    """Whether a tile takes longer or shorter with what a statement decides: a loop, or a branch around loops
    or products; what a branch does to elements alone is short."""
    if isinstance(stmt, If):
        return any(isinstance(inner, (*LOOPS, *PRODUCTS)) for inner in walk((stmt,)))
    return is_loop(stmt)


def order_of(
    launch: Launch, program: Program, loads: Sequence[Stmt], threads: int, guarded: bool
) -> int | None:
    """Tiles of a band of the order in which blocks walk (`walks`), 0 for the order of the hardware; None
    where they do not. Where a load stands outside of loops its only stage holds the next tile's up: there
    blocks walk for what they share alone."""
    if not walks(launch, program, threads, guarded):
        return None
    ahead = all(any(map(is_loop, program.around[load])) for load in loads)
    return band_of(launch, program, loads) or (0 if ahead else None)


def band_of(launch: Launch, program: Program, loads: Sequence[Stmt]) -> int:
    """Tiles of a band where loads are shared along the first axis and along the second one, as in products:
    as many as the author asks for, or so many that blocks which run together load about as much along either.
    0 elsewhere: there tiles in the order of the hardware are as fast (attention of 4096 keys on an H200: 538
    TFLOP/s, 521 where blocks stay)."""
    if len(launch.grid) < 2:
        return 0
    first, second = launch.block_vars[:2]
    used = {load: _names_of(load, program) for load in loads}
    along = sum(_bytes(load) for load, names in used.items() if first in names and second not in names)
    across = sum(_bytes(load) for load, names in used.items() if second in names and first not in names)
    if not along or not across:
        return 0
    alike = max(math.isqrt(_BLOCKS * along // across), 1)
    return launch.schedule.band or 1 << (alike.bit_length() - 1)


def _names_of(load: Stmt, program: Program) -> set[Var]:
    """The names that a load comes from."""
    exprs = (expr for part in walk((load,)) for expr in expressions(part))
    return {var for expr in exprs for var in _depends_on(expr, program)}


def _bytes(load: Stmt) -> int:
    """Bytes of the tile that a load fills."""
    tile = filled(load)
    return 0 if tile is None else tile_bytes(Alloc(tile))


def _depends_on(expr: Expr, program: Program) -> set[Var]:
    """The names that a value comes from."""
    found: set[Var] = set()
    work = [expr]
    while work:
        for var in undefined_vars(work.pop()):
            if var in found:
                continue
            found.add(var)
            definer = program.definers.get(var)
            if isinstance(definer, (Bind, For, Pipelined)):
                work += expressions(definer)
    return found
