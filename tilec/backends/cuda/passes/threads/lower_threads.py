"""What threads do one by one, in the forms that a block's code has."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.blocks.ended_threads import going_along
from tilec.backends.cuda.analysis.layouts.fragments import WARP
from tilec.backends.cuda.nodes import Digits, JoinThreads
from tilec.ir.analysis.threads.returns import has_return, without_return
from tilec.ir.nodes import Alloc, Bind, Block, Launch, Rest, Stmt, walk
from tilec.ir.nodes.threads import Lane, ThreadReduce
from tilec.lowering.analysis.thread_grid import ThreadGrid
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks

if TYPE_CHECKING:
    from tvm.ir import Var


#: Votes of a block as reductions of 0 and 1: how two are taken together, and what changes nothing.
_VOTES = {
    "block_count": (tirx.Add, 0),
    "block_and": (tirx.Min, 1),
    "block_or": (tirx.Max, 0),
}


class LowerThreads(LaunchPass):
    """In: Return and ThreadReduce, blocks of any number of threads. Out: conditions in place of the ends of
    threads, and JoinThreads with the lanes that shuffles join and the shared memory for the others; blocks
    are whole warps, whose last threads end at once."""

    def launch(self, launch: Launch) -> Launch:
        """The launch without Return and ThreadReduce."""
        shape = launch.threads
        if not launch.thread_vars:
            return replace(launch, threads=padded(shape))
        ends = has_return(launch.body)
        launch = replace(launch, body=without_return(launch.body))
        if padded(shape) != shape:
            launch = _filled_up(launch)
        if ends or launch.threads != shape:
            launch = replace(launch, body=going_along(launch, ThreadGrid.of(launch).number))
        if not any(map(is_for_all, walk(launch.body))):
            return launch
        rooms: list[Alloc] = []

        def rewrite(block: Block) -> list[Stmt]:
            return [new for stmt in block for new in _over_threads(stmt, shape, rooms)]

        body = rewrite_blocks(launch.body, rewrite)
        return replace(launch, body=(*rooms, *body))


def padded(threads: tuple[int, int, int]) -> tuple[int, int, int]:
    """The shape of a block with whole warps: its own, or all threads in a row."""
    count = threads[0] * threads[1] * threads[2]
    return threads if count % WARP == 0 else (-(-count // WARP) * WARP, 1, 1)


def _filled_up(launch: Launch) -> Launch:
    """The launch with whole warps. The new threads have ended before they begin; their indices are those of
    others."""
    row = tuple(tirx.Var(name, "int32") for name in ("thread", "none_y", "none_z"))
    binds, step, count = [], 1, launch.threads[0] * launch.threads[1] * launch.threads[2]
    for var, extent in zip(launch.thread_vars, launch.threads, strict=True):
        digit = tirx.truncdiv(row[0], tirx.const(step, "int32")) if step > 1 else row[0]
        binds.append(Bind(var, tirx.truncmod(digit, tirx.const(extent, "int32")), loc=launch.loc))
        step *= extent
    rest = Rest(row[0] < tirx.const(count, "int32"), launch.body, loc=launch.loc)
    shape = padded(launch.threads)
    return replace(launch, threads=shape, thread_vars=row, body=(*binds, rest))


def is_for_all(stmt: Stmt) -> bool:
    """Whether threads of several warps tell each other something by a statement."""
    return isinstance(stmt, ThreadReduce) or (isinstance(stmt, Lane) and stmt.kind in _VOTES)


def _over_threads(stmt: Stmt, shape: tuple[int, int, int], rooms: list[Alloc]) -> list[Stmt]:
    if isinstance(stmt, ThreadReduce):
        return [_joined(stmt, shape, rooms)]
    if not isinstance(stmt, Lane) or stmt.kind not in _VOTES:
        return [stmt]
    combine, identity = _VOTES[stmt.kind]
    left, right = (tirx.Var(name, "int32") for name in ("left", "right"))
    zero = tirx.const(0, "int32")
    found = tirx.decl_buffer((1,), "int32", f"{stmt.var.name}_votes", scope="local.var")
    vote = ThreadReduce(
        (left, right), combine(left, right), tirx.const(identity, "int32"),
        tirx.Cast("int32", stmt.operands[0]), tirx.const(True, "bool"), found, (zero,), (0, 1, 2),
        loc=stmt.loc,
    )  # fmt: skip
    value = Bind(stmt.var, tirx.BufferLoad(found, [zero]), loc=stmt.loc)
    return [Alloc(found, loc=stmt.loc), _joined(vote, shape, rooms), value]


def _joined(stmt: ThreadReduce, shape: tuple[int, int, int], rooms: list[Alloc]) -> JoinThreads:
    """Lanes whose numbers differ in single bits exchange values; what is left goes through shared memory."""
    masks: list[int] = []
    left: list[tuple[int, int]] = []
    stride = 1
    for axis, extent in enumerate(shape):
        if axis in stmt.axes and extent > 1:
            own, rest = _bits(stride, extent)
            masks += own
            left += rest
        stride *= extent
    scratch = None
    if left:
        scratch = _room(stmt, stride + -stride % WARP)
        rooms.append(Alloc(scratch, loc=stmt.loc))
    return JoinThreads(
        stmt.vars, stmt.combine, stmt.identity, stmt.value, stmt.cond, stmt.buffer, stmt.indices,
        stmt.axes, tuple(masks), Digits(tuple(left)), scratch, loc=stmt.loc,
    )  # fmt: skip


def _bits(stride: int, extent: int) -> tuple[list[int], list[tuple[int, int]]]:
    """The digit of a thread's number of this stride and extent: bits of lanes, and a digit for what is no bit
    of a lane."""
    if stride & (stride - 1) or extent & (extent - 1):
        return [], [(stride, extent)]
    masks = []
    while extent > 1 and stride < WARP:
        masks.append(stride)
        stride, extent = stride * 2, extent // 2
    return masks, [(stride, extent)] if extent > 1 else []


def _room(stmt: ThreadReduce, threads: int) -> Var:
    dtype = str(stmt.buffer.dtype)
    return tirx.decl_buffer((threads,), dtype, f"{stmt.buffer.name}_joined", scope="shared.dyn")
