"""How often a block fills the tiles of a ring: more stages than that stay empty."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tvm import sym

from tilec.backends.cuda.statement_roles.split.loads import is_loop
from tilec.ir.exprs import int_value
from tilec.ir.nodes import For, Pipelined, Stmt

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tvm.ir import Var

    from tilec.backends.cuda.statement_roles.split.loads import Load
    from tilec.backends.cuda.statement_roles.split.slices import Program


def fills(tiles: tuple[Var, ...], loads: Mapping[Stmt, Load], program: Program) -> float:
    """Trips of all loops around the loads of tiles that are loaded together; infinite where not known."""
    own = [stmt for stmt, load in loads.items() if load.tile.same_as(tiles[0])]
    return sum(math.prod(_trips(loop) for loop in program.around[stmt] if is_loop(loop)) for stmt in own)


def _trips(loop: Stmt) -> float:
    """Trips of a loop."""
    if not isinstance(loop, (For, Pipelined)):
        return math.inf
    extent = int_value(sym.Analyzer().simplify(loop.stop - loop.start))
    step = int_value(loop.step) if isinstance(loop, For) else 1
    return math.inf if extent is None or not step else max(-(-extent // step), 1)
