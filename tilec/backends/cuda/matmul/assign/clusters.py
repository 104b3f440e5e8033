"""Whether neighbouring blocks form a cluster, so that an operand that both read is brought once.

A row of 128 bytes that crosses a line of 128 bytes in memory costs TMA two requests, and a block issues more
rows than its products hide: then halving the larger operand's rows pays (5000^3 on an H200: 392 us in pairs,
485 without). Where rows are aligned pairs bring nothing, and blocks that wait for each other cost a little,
about a microsecond of a launch of one wave. On an H200, us, float16, tiles of 64 x 128, alone and in pairs:

M, N, K           alone  pairs
1000, 1000, 1024  6.9    8.0
1024, 1000, 4096  18.2   20.2
1024, 1024, 1000  10.9   8.8 to 9.6
512, 4096, 1000   18.0   13.5
1024, 4096, 5000  152    100
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilec.backends.cuda.matmul.match.launch import Match
from tilec.backends.cuda.matmul.nodes import WindowCopy
from tilec.backends.cuda.warp_roles.ring import GROUP_ROWS, tile_bytes
from tilec.backends.cuda.warp_roles.tma import element_strides, has_aligned_rows
from tilec.backends.cuda.warp_roles.wgmma import ROW_BYTES
from tilec.ir.exprs import inlined, int_value, loads, uses
from tilec.ir.nodes import Copy, Launch
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tvm.ir import Expr, Var

    from tilec.lowering.analysis.facts import Facts


def pair_axis(launch: Launch, found: Match, facts: Facts) -> int | None:
    """The grid axis whose neighbours form pairs: what is asked for (``cluster`` of a
    config, cluster_dims of the author), or the one along
    which the larger operand is shared if rows are known to be unaligned. None for no clusters."""
    dims = launch.schedule.clusters
    if dims is not None:
        pairs = [axis for axis, size in enumerate(dims) if size == 2]
        fits = len(pairs) == 1 and all(size in (1, 2) for size in dims) and pairs[0] < len(launch.grid)
        return pairs[0] if fits and _shared_bytes(launch, found, facts, pairs[0]) else None
    if not any(map(_is_unaligned, found.loads)):
        return None
    axes = range(min(2, len(launch.grid)))
    best = max(axes, key=lambda axis: _shared_bytes(launch, found, facts, axis))
    return best if _shared_bytes(launch, found, facts, best) else None


def crosses(launch: Launch, found: Match, facts: Facts, pair: int | None) -> bool:
    """Whether tiles at an odd end of the ``pair`` axis form pairs along the other one: there they share what
    the others do not, and everything comes in halves."""
    if pair is None or len(launch.grid) != 2:
        return False
    axes, names = (launch.block_vars[pair], launch.block_vars[1 - pair]), found.names
    if not _go_together(found, axes[1]) or _looks_up(found, axes[1]):
        return False
    shared = [[is_shared(copy, var, names, facts, padded=True) for copy in found.loads] for var in axes]
    return any(shared[0]) and shared[1] == [not each for each in shared[0]]


def _go_together(found: Match, var: Var) -> bool:
    """Whether neighbours along the grid axis of ``var`` have the same trips: each fills stages of both."""
    return not any(uses(end, (var,)) for end in found.ends)


def _looks_up(found: Match, var: Var) -> bool:
    """Whether a block reads elements for addresses that hang on its place along the grid axis of ``var``: a
    second block outside of the grid would read behind their tensor."""
    starts = (start for copy in found.loads for start in copy.src.start)
    values = (inlined(value, found.names) for value in (*found.names.values(), *starts))
    return any(uses(load, (var,)) for value in values for load in loads(value))


def is_shared(
    copy: Copy | WindowCopy, var: Var, names: Mapping[Var, Expr], facts: Facts, padded: bool
) -> bool:
    """Whether neighbours along the grid axis of ``var`` load the same by TMA in a trip, in halves that keep
    the swizzle: those of ``padded`` tiles all do. ``names``: what the copy's start is written with."""
    if isinstance(copy, WindowCopy):  # where the second half begins depends on where rows of pixels end
        return False
    rows = int_value(copy.dst.extent[-2]) or 0
    if not has_aligned_rows(copy.src.buffer, facts) or (not padded and rows % (2 * GROUP_ROWS)):
        return False
    return not any(uses(inlined(start, names), (var,)) for start in copy.src.start)


def _shared_bytes(launch: Launch, found: Match, facts: Facts, axis: int) -> int:
    """Bytes of a stage that neighbours along an axis share."""
    var, padded = launch.block_vars[axis], crosses(launch, found, facts, axis)
    if not _go_together(found, var) or (_looks_up(found, var) and not padded):
        return 0
    shared = [copy for copy in found.loads if is_shared(copy, var, found.names, facts, padded)]
    return sum(tile_bytes(copy.dst.buffer) for copy in shared)


def _is_unaligned(copy: Copy | WindowCopy) -> bool:
    buffer = copy.src.buffer
    pitch = int_value(element_strides(buffer)[-2])
    return pitch is not None and pitch * element_bytes(str(buffer.dtype)) % ROW_BYTES != 0
