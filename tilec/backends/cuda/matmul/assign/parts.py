"""How many blocks of a cluster share the K of a tile: several where few tiles are deep.

A trip takes what its products, their reads of shared memory or its share of L2 take. Blocks that share a tile
have fewer trips, which may take longer as more blocks load, and pay for meeting and adding up. Of an H200, us
with 1, 2 and 4 parts:

tile       M, N, K           1     2     4
128 x 128  128, 4096, 4096   22.8  19.2
128 x 128  512, 1024, 3072   18.0  14.7  20.3
128 x 128  1024, 1024, 1024  8.7   9.3
128 x 128  128, 2048, 8192   40.2  28.4  19.7
64 x 128   512, 512, 8192    22.0  17.8  22.6
64 x 128   512, 1024, 4096   14.0  15.2
128 x 64   128, 4096, 4096   15.7  14.0
64 x 64    64, 4096, 4096    11.9  12.7  24.6
16 x 128   8, 7168, 4096     17.1  17.6  21.0
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.pipelines.ring_depth import trip_clocks
from tilec.backends.cuda.analysis.products.mma import extents
from tilec.backends.cuda.analysis.products.wgmma import ROWS
from tilec.backends.cuda.limits import MEETING, MORE, TRIP, gpu_limits
from tilec.backends.cuda.matmul.match.launch import Match
from tilec.backends.cuda.matmul.match.quotients import bounds_of
from tilec.backends.cuda.warp_roles.ring import version_bytes
from tilec.backends.cuda.warp_roles.stores import STAGING_BYTES, staging_room
from tilec.ir.nodes import Launch
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.lowering.analysis.facts import Facts
    from tilec.targets import Target

#: Bytes in a clock: of L2 to all multiprocessors, of shared memory to the products of one.
_L2_BYTES, _SHARED_BYTES = 8192, 100
#: Clocks of a launch beside its trips.
_LAUNCH = 7300
#: Share of the time that has to be gained.
_GAIN = 0.08
#: Multiprocessors that clusters of four reach, of so many.
_REACHED = (30, 33)


def parts_of_k(found: Match, facts: Facts, tiles: int, target: Target) -> int:
    """The blocks that share a tile, of which there are ``tiles`` at most."""
    trips = bounds_of(found.loop.stop - found.loop.start, facts)[0]
    fitting = [parts for parts in (2, 4) if _fits(found, parts, tiles, target)]
    clocks = {parts: _clocks(found, trips, tiles, parts, target) for parts in (1, *fitting)}
    best = min(clocks, key=lambda parts: clocks[parts])
    return best if clocks[1] - clocks[best] >= _GAIN * (clocks[1] + _LAUNCH) else 1


def _clocks(found: Match, trips: int, tiles: int, parts: int, target: Target) -> float:
    """The time of the trips of a tile and of adding up its parts."""
    loaded = stage_bytes(found)
    products = trip_clocks((found.gemm,), target)
    trip = max(TRIP, products, _read_bytes(found) / _SHARED_BYTES, loaded * tiles * parts / _L2_BYTES)
    together = 0 if parts == 1 else MEETING + MORE * (parts // 2 - 1)
    return trips / parts * trip + together


def _read_bytes(found: Match) -> int:
    """Shared memory that the products of a trip read: each instruction 64 rows and all columns."""
    rows, columns, depth = extents(found.gemm) or (0, 0, 0)
    return -(-rows // ROWS) * (ROWS + columns) * depth * element_bytes(str(found.gemm.a.buffer.dtype))


def most_tiles(launch: Launch, facts: Facts) -> int:
    """The most tiles that a grid may have."""
    return math.prod(_most(extent, facts) for extent in launch.grid)


def _most(extent: Expr | int, facts: Facts) -> int:
    return extent if isinstance(extent, int) else bounds_of(extent, facts)[1]


def _fits(found: Match, parts: int, tiles: int, target: Target) -> bool:
    """Whether all blocks run at once, each gets columns of float32 sums, and has room for what it is sent."""
    units = gpu_limits(target, {}).units
    reached = units if parts < 4 else units * _REACHED[0] // _REACHED[1]
    whole = found.columns % (8 * parts) == 0 and str(found.gemm.c.buffer.dtype) == "float32"
    ring = max(found.loop.num_stages, 1) * stage_bytes(found)
    room = staging_room(ring + 4 * found.rows * found.columns, found.warpgroups, target)
    return whole and tiles * parts <= reached and room >= STAGING_BYTES


def stage_bytes(found: Match) -> int:
    """Bytes of a stage of a ring."""
    return sum(version_bytes(copy.dst.buffer, False) for copy in found.loads)
