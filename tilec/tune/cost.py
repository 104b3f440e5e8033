"""How long a config should take: the order in which configs are tried, so that a good one is found early.

The largest of three times: products on the units that the waves of blocks keep busy; bytes between tiles and
the cache; bytes that memory has to move at least. To that come what a launch and a block cost. It ranks, it
does not predict: the constants are the shape of a curve, not a calibration.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from tilec.manifest.conditions import evaluate
from tilec.tune.examine import Examined, LaunchShape
from tilec.tune.limits import Limits

#: Operations per byte of a tile at which a unit reaches half of its peak.
_HALF_INTENSITY = 24.0
#: Registers of a multiprocessor over those that a thread of a product takes.
_THREADS_BY_REGISTERS = 512


def predicted_seconds(examined: Examined, dims: Mapping[str, int], moved: float, limits: Limits) -> float:
    """Seconds of one call with ``dims``. ``moved``: bytes of all tensors."""
    work = examined.work
    flops, traffic = work.flops(dims), work.traffic(dims)
    seconds = max(traffic / limits.cache_bandwidth, moved / limits.bandwidth)
    overhead = busy = 0.0
    for launch in examined.launches:
        blocks = _blocks(launch, dims)
        waves, share = _waves(launch, blocks, limits)
        overhead += limits.launch + waves * limits.block
        busy = max(busy, share)
    if flops:
        intensity = flops / max(traffic, 1.0)
        efficiency = intensity / (intensity + _HALF_INTENSITY)
        seconds = max(seconds, flops / (limits.peak(work.dtype) * efficiency * max(busy, 1e-3)))
    return seconds / max(min(1.0, 4 * busy), 1e-2) + overhead


def _blocks(launch: LaunchShape, dims: Mapping[str, int]) -> int:
    try:
        return max(1, math.prod(int(evaluate(text, dims)) for text in launch.grid))
    except KeyError:  # the grid is in a scalar argument
        return 1


def _waves(launch: LaunchShape, blocks: int, limits: Limits) -> tuple[int, float]:
    """Waves of blocks, and the share of the units that work in the mean."""
    resident = limits.units * _per_unit(launch, limits)
    if launch.cluster > 2:
        resident = resident * 30 // 33  # units that no whole cluster fits on
    waves = math.ceil(blocks / max(resident, 1))
    units = limits.units * (resident // limits.units or 1)
    return waves, blocks / (waves * units)


def _per_unit(launch: LaunchShape, limits: Limits) -> int:
    """Blocks that a unit holds at a time."""
    if not limits.threads:
        return 1
    fits = [
        limits.blocks,
        limits.threads // max(launch.threads, 1),
        max(1, _THREADS_BY_REGISTERS // max(launch.threads, 1)),
    ]
    if launch.shared_bytes:
        fits.append(limits.shared_bytes // (launch.shared_bytes + 1024))
    if launch.blocks_per_sm:
        fits.append(launch.blocks_per_sm)
    return max(1, min(fits))
