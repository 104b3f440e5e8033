"""In which order persistent blocks take the tiles of a grid."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.attention.assign.parts import Parts
from tilec.backends.cuda.attention.assign.windows import is_short_window
from tilec.backends.cuda.attention.nodes import AttentionOrder
from tilec.backends.cuda.warp_roles.epilogue import call_name
from tilec.backends.cuda.warp_roles.ring import tile_bytes
from tilec.ir.exprs import dtype_of, inlined, int_value, loads, substitute, uses
from tilec.ir.nodes import Copy, Launch, Pipelined
from tilec.lowering.analysis.accesses import values_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tvm.ir import Expr, Var

#: Bytes of streamed tiles that stay in L2 beside all else (32 MiB of 50 on an H200 won: longer rows of heads
#: evict each other, shorter ones leave blocks idle at the end of a section).
_SECTION_BYTES = 32 << 20


def plan_order(launch: Launch, parts: Parts, units: int) -> AttentionOrder:
    """Tiles with more trips first, where trips grow along the first axis of the grid (not those of a short
    window) and a second axis has tiles of equal work; else the order of the grid, whose tiles are handed out
    one by one where a tensor says how many trips each has along the first axis. Tiles without any trip may
    lie anywhere between. Blocks that stream a tile which changes along the first axis, and not along another
    one (a bias for all sequences of a batch), stand side by side: they read it once from memory. Where each
    tile has one of the ``units`` of a usual device, who asks for another one finds none; a launch that clears
    a counter would be 1.5 us of 6.5 (48 tiles of 18 rows, H200)."""
    loop = next(stmt for stmt in parts.producer if isinstance(stmt, Pipelined))
    values = values_of((*parts.producer, *loop.body))
    stop = inlined(loop.stop, values)
    var = launch.block_vars[0]
    counter = tirx.decl_buffer((1,), "uint32", name="tile_counter", scope="global.workspace")
    if any(uses(index, (var,)) for load in loads(stop) for index in load.indices):
        return AttentionOrder(counter=counter)
    shared = _shared_axis(launch, loop, values)
    grows = growth(stop, var) == 1 and not is_short_window(launch, parts)
    if len(launch.grid) < 2 or (shared is None and not grows):
        return AttentionOrder()
    section = _section(launch, loop, stop)
    if not grows:
        return AttentionOrder(None, section, shared=shared)
    return AttentionOrder(0, section, counter, units, shared)


def _shared_axis(launch: Launch, loop: Pipelined, values: Mapping[Var, Expr]) -> int | None:
    """The first axis of the grid behind the first one along which a streamed tile stays the same that changes
    along the first one."""
    first, *others = launch.block_vars
    for stmt in loop.body:
        places = [inlined(at, values) for at in stmt.src.start] if isinstance(stmt, Copy) else []
        if not any(uses(at, (first,)) for at in places):
            continue
        for axis, var in enumerate(others, 1):
            if not any(uses(at, (var,)) for at in places):
                return axis
    return None


def _section(launch: Launch, loop: Pipelined, stop: Expr) -> Expr | int:
    """Positions of the other axes whose streamed tiles fit in L2 together, of the most trips that the first
    or the last of them have."""
    size = sum(map(tile_bytes, {stmt.dst.buffer for stmt in loop.body if isinstance(stmt, Copy)}))
    bound = without_loads(stop)
    if bound is None:
        return 1 << 30
    dtype = dtype_of(bound)
    first, *others = launch.block_vars
    ends = [
        tirx.const(extent, dtype) - 1 if isinstance(extent, int) else extent - 1 for extent in launch.grid
    ]
    bound = substitute(bound, {first: ends[0]})
    if uses(bound, others):
        last = substitute(bound, dict(zip(others, ends[1:], strict=True)))
        bound = tirx.Max(substitute(bound, {other: tirx.const(0, dtype) for other in others}), last)
    trips = tirx.Max(bound, tirx.const(1, dtype))
    return tirx.Max(tirx.floordiv(tirx.const(_SECTION_BYTES // size, dtype), trips), tirx.const(1, dtype))


def without_loads(expr: Expr) -> Expr | None:
    """A bound of ``expr`` from above that reads no memory; None where there is none."""
    if next(loads(expr), None) is None:
        return expr
    if call_name(expr) == "if_then_else":
        return without_loads(expr.args[1])
    if not isinstance(expr, (tirx.Min, tirx.Max, tirx.Add, tirx.FloorDiv)):
        return None
    left, right = without_loads(expr.a), without_loads(expr.b)
    if isinstance(expr, tirx.Min):
        return right if left is None else left
    if left is None or right is None or (isinstance(expr, tirx.FloorDiv) and (int_value(expr.b) or 0) <= 0):
        return None
    return type(expr)(left, right)


def growth(expr: Expr, var: Var) -> int | None:
    """1 where ``expr`` never falls as ``var`` grows but to the other side of a choice, 0 where it does not
    depend on it; None for all else."""
    if not uses(expr, (var,)):
        return 0
    if expr.same_as(var):
        return 1
    if isinstance(expr, (tirx.Add, tirx.Min, tirx.Max)):
        sides = (growth(expr.a, var), growth(expr.b, var))
        return None if None in sides else 1
    if isinstance(expr, tirx.Sub):
        return 1 if growth(expr.a, var) == 1 and not uses(expr.b, (var,)) else None
    if isinstance(expr, (tirx.Mul, tirx.FloorDiv)):
        return growth(expr.a, var) if (int_value(expr.b) or 0) > 0 else None
    if call_name(expr) == "if_then_else" and int_value(expr.args[2]) == 0:
        return None if growth(expr.args[1], var) is None else 1
    return None
