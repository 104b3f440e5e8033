"""Few rows by a matrix whose rows begin anywhere, across K or along it: TMA takes groups of its rows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.accesses.whole_lines import num_pieces
from tilec.backends.cuda.matmul.assign.roles import plan
from tilec.backends.cuda.matmul.folding.across import Folded
from tilec.backends.cuda.matmul.folding.along import FoldedAlong
from tilec.backends.cuda.matmul.folding.base import Folding
from tilec.backends.cuda.matmul.match.heads import is_straight
from tilec.backends.cuda.matmul.match.launch import Match, match
from tilec.backends.cuda.matmul.nodes import WindowCopy
from tilec.backends.cuda.warp_roles.tma import rows_of_a_group
from tilec.backends.cuda.warp_roles.unfit import Obeying, Unfit, need
from tilec.ir.exprs import inlined, int_value, linear_in
from tilec.ir.nodes import Alloc, Block, Copy, Kernel, Launch, Stmt
from tilec.ir.options import NO_ROLES
from tilec.lowering.analysis.regions import static
from tilec.lowering.analysis.scopes import ScopedRewrite
from tilec.lowering.passes.base import Pass

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.lowering.analysis.facts import Facts
    from tilec.targets import Target

#: Axes of a grid beside that of the rows of a group.
_AXES = 2
#: Rows of a group that may have a tensor map each: a call has 16, some of which are those of other tensors.
_MOST_MAPS = 8


class FoldRows(Pass):
    """In: launches of one product that ask for `fold_k`. Out: for each whose second operand is stored across
    K, one that brings the columns of the first operand into the order of the rows of groups, one with a last
    grid axis of these rows, which stores their sums to the workspace of the call, and one that adds them up
    and computes the epilogue. For each whose second operand is stored along K, one that moves the first
    operand as far as the rows of groups are behind places where boxes start, and one with a last grid axis of
    these rows, whose results are every eighth column."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with its rows folded."""
        if kernel.option(NO_ROLES) is not None:
            return kernel
        body: list[Stmt] = []
        for stmt in kernel.body:
            asked = isinstance(stmt, Launch) and stmt.schedule.fold_k
            body += _folded(kernel, stmt, target) if isinstance(stmt, Launch) and asked else (stmt,)
        return replace(kernel, body=tuple(body))


def _folded(kernel: Kernel, launch: Launch, target: Target) -> Block:
    """The launches; the one that there is where it is no product, of which its family says so."""
    try:
        found = match(launch)
    except Unfit:
        return (launch,)
    with Obeying("fold_k", launch):
        folded = _checked(kernel, launch, found)
        plan(kernel, folded.multiplying, target)
    return (*map(Alloc, folded.workspace), *folded.launches)


def _checked(kernel: Kernel, launch: Launch, found: Match) -> Folding:
    """The launch as a folded one. Unfit where more than sums hangs on which rows a trip multiplies."""
    need(found.is_single, "it has several products")
    alone = found.guard is None and found.promotion is None and is_straight(found.head)
    need(alone, "tiles that are looked up, or whose sums are scaled in every trip, are not folded")
    need(not found.reads_pairs, "its epilogue reads other columns than an element's own")
    parted = launch.schedule.spread_k is not None
    need(not parted, "K is shared in one way", remedy="leave spread_k or fold_k out")
    need(not found.gemm.trans_a, f"{found.a.src.buffer.name} is not stored along K", found.gemm)
    along = found.gemm.trans_b
    a, b = _matrix(found.a), _matrix(found.b)
    need(len(launch.grid) == _AXES, "its grid has other axes than rows and columns of tiles")
    rows, columns = _axis_of(launch, found, a, 0), _axis_of(launch, found, b, int(not along))
    need(rows != columns, "rows and columns of its tiles follow the same axis of the grid")
    facts = ScopedRewrite(kernel, launch).facts
    _check_trips(found, a, b, facts)
    if along:
        _check_maps(b)
        return FoldedAlong(launch, found, a, b, rows, columns, facts)
    _check_sums(launch, found)
    return Folded(launch, found, a, b, rows, columns)


def _check_sums(launch: Launch, found: Match) -> None:
    """Unfit where sums of parts of K cannot be added by a launch of their own."""
    simple = len(found.tail) == 1 and len(found.fragments) == 1
    need(simple, "its epilogue is more than one loop over its sums")
    alone = launch.schedule.split_k in (None, 1)
    need(alone, "K is shared in one way", remedy="leave split_k or fold_k out")


def _check_maps(b: Copy) -> None:
    """Unfit where each row of a group has a tensor map, and there are too many of them."""
    rows, dtype = rows_of_a_group(b.src.buffer), b.src.buffer.dtype
    need(rows <= _MOST_MAPS, f"groups of {rows} rows of {dtype} take more tensor maps than a call has", b)


def _matrix(copy: Copy | WindowCopy) -> Copy:
    """A copy of a contiguous matrix; Unfit of others."""
    if isinstance(copy, WindowCopy) or len(copy.src.buffer.shape) != _AXES or len(copy.src.buffer.strides):
        raise Unfit(f"{copy.src.buffer.name} is no contiguous matrix", copy)
    return copy


def _axis_of(launch: Launch, found: Match, copy: Copy, axis: int) -> int:
    """The axis of the grid along which tiles of an operand's ``axis`` follow one another from 0 on."""
    size, start = static(copy.dst.extent[axis]), inlined(copy.src.start[axis], found.names)
    axes = [number for number, var in enumerate(launch.block_vars) if _factor(start, var) == size]
    need(len(axes) == 1, f"tiles of {copy.src.buffer.name} do not follow an axis of the grid", copy)
    return axes[0]


def _check_trips(found: Match, a: Copy, b: Copy, facts: Facts) -> None:
    """Unfit where the trips of a tile are not all steps of K, one after the other."""
    depth, axis = static(a.dst.extent[1]), int(found.gemm.trans_b)
    starts = [inlined(start, found.names) for start in (a.src.start[1], b.src.start[axis])]
    start, stop = found.ends
    ends_with_k = int_value(facts.simplify(stop - num_pieces(b.src.buffer.shape[axis], depth))) == 0
    follow = all(_factor(each, found.loop.var) == depth for each in starts)
    need(int_value(start) == 0 and ends_with_k and follow, "its loop is not along all of K", found.loop)


def _factor(expr: Expr, var: Var) -> int | None:
    """The integer that ``expr`` is ``var`` times of; None where it is something else."""
    linear = linear_in(expr, [var])
    return int_value(linear[0]) if linear and int_value(linear[1]) == 0 else None
