"""Products of fewer rows than wgmma has are computed transposed, with all that their sums go through.

    S = Q K^T; P = f(S); O += P V    ->    S^T = K Q^T; P^T = f(S^T); O^T += V^T P^T

wgmma takes 64 rows and 8 columns at least: where 16 heads share keys, these and the features are its rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.blocks.threads import has_groups, thread_count, warps_of
from tilec.backends.cuda.analysis.layouts.families import Families
from tilec.backends.cuda.analysis.layouts.turned_sums import turned_product, with_transposed
from tilec.backends.cuda.analysis.products.turn_operands import HELD
from tilec.backends.cuda.analysis.products.wgmma import ROWS, Chooser
from tilec.backends.cuda.limits import has_wgmma
from tilec.backends.cuda.statement_roles.split.split_roles import check_one_warp_loads
from tilec.backends.cuda.warp_roles.unfit import Unfit, need
from tilec.ir.nodes import Alloc, Gemm, Kernel, Launch, walk
from tilec.ir.nodes.barriers import WARPGROUP
from tilec.ir.options import NO_ROLES
from tilec.lowering.analysis.roads import with_notes
from tilec.lowering.emission.storage import element_bytes
from tilec.lowering.passes.base import Pass, rewrite_launches

if TYPE_CHECKING:
    from tilec.targets import Target


#: Bytes of the widest operands that are worth it.
_WIDEST = 2


class TurnFewRows(Pass):
    """In: launches with products of too few rows or threads for wgmma. Out: those in which all products are
    wgmma with the sums of these transposed, and all fragments that lie as these do, and which get warp roles
    with TMA then, have them so, by a warpgroup at least. Without roles they would be no faster (keys by
    cp.async, 64 sequences of 4096 keys on an H200: 101.6 us for 95.0)."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with its products turned."""
        if not has_wgmma(target) or kernel.option(NO_ROLES) is not None:
            return kernel
        return rewrite_launches(kernel, lambda launch: _turned(kernel, launch, target))


def _turned(kernel: Kernel, launch: Launch, target: Target) -> Launch:
    if not _left(launch):
        return launch
    whole = _by_a_warpgroup(launch)
    few = _left(whole)
    if not _fit_transposed(few, whole):
        return launch
    notes = [f"{_names(few)}: computed transposed, as wgmma takes {ROWS} rows"] if few else []
    try:
        made = _with_few_transposed(whole, few)
        check_one_warp_loads(kernel, made, target)
    except Unfit as unfit:
        return with_notes(launch, [f"{_names(few)}: not computed transposed, as {unfit}"] if few else [])
    if whole is not launch:
        notes.append(f"{WARPGROUP} threads where {thread_count(launch)} are asked for: wgmma takes as many")
    return with_notes(made, notes)


def _by_a_warpgroup(launch: Launch) -> Launch:
    """The launch with a warpgroup where it has fewer threads, and nothing says which one does what."""
    asked = (stmt.asked for stmt in walk(launch.body) if isinstance(stmt, Alloc))
    if thread_count(launch) >= WARPGROUP or launch.thread_vars or has_groups(launch) or any(asked):
        return launch
    return replace(launch, threads=(WARPGROUP, 1, 1))


def _left(launch: Launch) -> list[Gemm]:
    """The products that wgmma does not take as they stand."""
    chooser = Chooser(launch, None)
    products = (stmt for stmt in walk(launch.body) if isinstance(stmt, Gemm))
    return [gemm for gemm in products if not chooser.takes(gemm, warps_of(launch))]


def _fit_transposed(few: list[Gemm], launch: Launch) -> bool:
    """Whether wgmma would take products if they were transposed. Not of float32, of which it drops bits that
    mma.sync rounds, and is no faster (16 x 14336 x 4096 on an H200: 57.2 us both ways)."""
    if any(element_bytes(str(gemm.a.buffer.dtype)) > _WIDEST for gemm in few):
        return False
    chooser = Chooser(launch, None)
    return all(chooser.takes(turned_product(gemm), warps_of(launch)) for gemm in few)


def _with_few_transposed(launch: Launch, few: list[Gemm]) -> Launch:
    """The launch with the sums of ``few`` products transposed, and all that lies as they do. Unfit where a
    statement takes these as they lie, or wgmma does not take all products then."""
    need(all(gemm.c.buffer.scope() == HELD for gemm in few), "sums are in shared memory")
    families = Families(launch)
    chosen = {fragment for gemm in few for fragment in families.of(gemm.c.buffer)}
    reason = families.obstacle(chosen)
    need(reason is None, str(reason))
    made = with_transposed(launch, chosen)
    left = _left(made)
    need(not left, f"the product of {_names(left)} would have too few rows or columns then")
    return made


def _names(products: list[Gemm]) -> str:
    return ", ".join(dict.fromkeys(str(gemm.c.buffer.name) for gemm in products))
