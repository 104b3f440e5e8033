"""What threads do one by one, in the forms that a block's code has."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.ir.nodes import Alloc, Bind, Block, Kernel, Launch, Stmt, walk
from tilec.ir.returns import has_return, without_return
from tilec.ir.threads import Lane, ThreadReduce
from tilec.lowering.cuda.fragments import WARP
from tilec.lowering.cuda.nodes import Digits, JoinThreads
from tilec.lowering.passes import rewrite_blocks, rewrite_launches

if TYPE_CHECKING:
    from tvm.ir import Var

    from tilec.targets import Target

#: Votes of a block as reductions of 0 and 1: how two are taken together, and what changes nothing.
_VOTES = {
    "block_count": (tirx.Add, 0),
    "block_and": (tirx.Min, 1),
    "block_or": (tirx.Max, 0),
}


@dataclass(frozen=True)
class LowerThreads:
    """In: Return and ThreadReduce. Out: conditions in place of the ends of threads, and JoinThreads with the
    lanes that shuffles join and the shared memory for the others."""

    name: str = "lower_threads"

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel without Return and ThreadReduce."""
        return rewrite_launches(kernel, _rewritten)


def _rewritten(launch: Launch) -> Launch:
    if not any(map(_is_for_all, walk(launch.body))) and not has_return(launch.body):
        return launch
    rooms: list[Alloc] = []

    def rewrite(block: Block) -> list[Stmt]:
        return [new for stmt in block for new in _over_threads(stmt, launch, rooms)]

    body = rewrite_blocks(without_return(launch.body), rewrite)
    return replace(launch, body=(*rooms, *body))


def _is_for_all(stmt: Stmt) -> bool:
    """Whether threads of several warps tell each other something by a statement."""
    return isinstance(stmt, ThreadReduce) or (isinstance(stmt, Lane) and stmt.kind in _VOTES)


def _over_threads(stmt: Stmt, launch: Launch, rooms: list[Alloc]) -> list[Stmt]:
    if isinstance(stmt, ThreadReduce):
        return [_joined(stmt, launch, rooms)]
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
    return [Alloc(found, loc=stmt.loc), _joined(vote, launch, rooms), value]


def _joined(stmt: ThreadReduce, launch: Launch, rooms: list[Alloc]) -> JoinThreads:
    """Lanes whose numbers differ in single bits exchange values; what is left goes through shared memory."""
    masks: list[int] = []
    left: list[tuple[int, int]] = []
    stride = 1
    for axis, extent in enumerate(launch.threads):
        if axis in stmt.axes and extent > 1:
            own, rest = _bits(stride, extent)
            masks += own
            left += rest
        stride *= extent
    scratch = None
    if left:
        scratch = _room(stmt, stride)
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
