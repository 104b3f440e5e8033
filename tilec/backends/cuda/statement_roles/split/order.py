"""In which order blocks take the tiles of a grid: one each, or one after the other in bands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tvm.tirx.analysis import undefined_vars

from tilec.backends.cuda.statement_roles.split.loads import is_loop
from tilec.backends.cuda.statement_roles.split.registers import handed_on
from tilec.backends.cuda.statement_roles.split.slices import Program
from tilec.backends.cuda.warp_roles.nodes import WARPGROUP
from tilec.ir.nodes import LOOPS, Bind, For, Gemm, If, Launch, Pipelined, Stmt, walk
from tilec.ir.nodes.barriers import AllocBarrier
from tilec.ir.traits import expressions

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

#: Tiles of a band along the second axis, where both axes share loads.
_BAND = 16


def walks(launch: Launch, program: Program, threads: int) -> bool:
    """Whether blocks stay and take tile after tile: where one block has a multiprocessor's registers to
    itself, so that its loads run ahead of its results, and all tiles take about as long."""
    if launch.schedule.persistent is False or handed_on(threads // WARPGROUP, ()) is None:
        return False
    blocks = set(launch.block_vars)
    control = (stmt for stmt in program.around if _takes_long(stmt))
    phases = any(isinstance(stmt, AllocBarrier) for stmt in program.around)  # each tile would begin another
    return (
        not any(_depends_on(expr, program) & blocks for stmt in control for expr in expressions(stmt))
        and not launch.schedule.cluster_dims
        and not phases
    )


def _takes_long(stmt: Stmt) -> bool:
    """Whether a tile takes longer or shorter with what a statement decides: a loop, or a branch around loops
    or products; what a branch does to elements alone is short."""
    if isinstance(stmt, If):
        return any(isinstance(inner, (*LOOPS, Gemm)) for inner in walk((stmt,)))
    return is_loop(stmt)


def order_of(launch: Launch, program: Program, loads: Sequence[Stmt], threads: int) -> int | None:
    """Tiles of a band of the order in which blocks walk, 0 for the order of the hardware; None where they do
    not. Where a load stands outside of loops its only stage holds the next tile's up: there blocks walk for
    what they share alone."""
    if not walks(launch, program, threads):
        return None
    ahead = all(any(map(is_loop, program.around[load])) for load in loads)
    return band_of(launch, program, loads) or (0 if ahead else None)


def band_of(launch: Launch, program: Program, loads: Sequence[Stmt]) -> int:
    """Tiles of a band where loads are shared along the first axis and along the second one, as in products:
    as many as the author asks for, or several. 0 elsewhere: there tiles in the order of the hardware are as
    fast (attention of 4096 keys on an H200: 538 TFLOP/s, 521 where blocks stay)."""
    if len(launch.grid) < 2:
        return 0
    first, second = launch.block_vars[:2]
    used = [
        {var for part in walk((load,)) for expr in expressions(part) for var in _depends_on(expr, program)}
        for load in loads
    ]
    along = any(first in names and second not in names for names in used)
    across = any(second in names and first not in names for names in used)
    return (launch.schedule.band or _BAND) if along and across else 0


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
