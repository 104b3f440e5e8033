"""How long a config should take: the order in which configs are tried, so that a good one is found early.

A launch takes as many waves as its blocks need on the units that hold them. A block takes the longest of
three times, and a little to begin and end: its bytes at its share of the cache's bandwidth, or at what its
loads in flight can bring in a memory latency; its products at its share of a unit's rate, which few warps do
not reach; its other arithmetic. On a CPU, which packs what it multiplies before it does and computes nothing
past the ends of tensors, it takes the sum of the three. No launch is faster than memory moves the tensors. It
ranks and does not predict: the constants were fitted to the order of 287 configs of seven variants of GEMM
and w4a16, measured on an H200 (`benchmarks/tune_strategies.py` says how well it does).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilec.backends.limits import Limits
from tilec.build.schedules.examine import Examined, LaunchShape
from tilec.dtypes import lookup
from tilec.ir.num_sms import NUM_SMS
from tilec.package.model import ParamRecord
from tilec.sizes import SIZES, evaluate
from tilec.targets import REGISTER_FILE, SYSTEM_SHARED_BYTES

#: Seconds until memory answers, and those that a block takes beside its work.
_LATENCY, _BLOCK = 0.9e-6, 1.6e-6
#: Words of a fragment that a thread has registers for, of 255, and what a block takes longer where they do
#: not fit: 11 to 60 times, of products of 16 bits with 256 words on an H200.
_WORDS, _SPILLED = 224, 15.0
#: Bytes that a thread has in flight where loads go to registers.
_LOADS = 64
#: Registers that a thread takes in the mean.
_PER_THREAD = 96
#: Warps of a unit that reach its rate in products, which is this share of the nominal one, and falls with
#: fewer warps by this power.
_PRODUCT_WARPS, _PRODUCT_SHARE, _PRODUCT_POWER = 8, 0.475, 0.45
#: Share of that rate that mma.sync reaches where wgmma is to be had.
_WITHOUT_TMA = 0.4
#: Warps that reach the rate in other arithmetic; instructions for an element of T.Parallel.
_OTHER_WARPS, _INSTRUCTIONS = 15, 4.6


@dataclass(frozen=True)
class _Share:
    """What one block of a launch has: ``units`` work, ``beside`` blocks on each, in ``waves``."""

    units: int
    beside: float
    waves: int
    warps: float


def predicted_seconds(examined: Examined, dims: Mapping[str, int], moved: float, limits: Limits) -> float:
    """Seconds of one call with ``dims``. ``moved``: bytes of all tensors."""
    dims = {NUM_SMS: limits.units, **dims}
    work, total = examined.work, 0.0
    for number, launch in enumerate(examined.launches):
        # lowering may put launches of its own in front
        place = number - len(examined.launches) + work.launches
        flops, traffic, elements, products = work.totals(dims, place, padded=bool(limits.threads))
        blocks = _blocks(launch, dims)
        share = _share(launch, blocks, limits)
        parts = (
            traffic / blocks / _bandwidth(launch, share, limits),
            max(
                flops / blocks / _product_rate(launch, share, work.dtype, limits),
                products / blocks * limits.trip if launch.bulk_copies else 0.0,
            ),
            elements / blocks / _other_rate(share, limits),
        )
        block, overhead = (max(parts), _BLOCK) if limits.threads else (sum(parts), limits.block)
        if limits.threads and launch.words > _WORDS:
            block *= _SPILLED
        if launch.parts > 1:
            overhead += limits.meeting[0] + limits.meeting[1] * (launch.parts // 2 - 1)
        total += limits.launch + max(share.waves * (block + overhead), moved / limits.bandwidth)
    return total


def _blocks(launch: LaunchShape, dims: Mapping[str, int]) -> int:
    try:
        return max(1, math.prod(int(evaluate(SIZES, text, dims)) for text in launch.grid))
    except KeyError:  # the grid is in a scalar argument
        return 1


def _share(launch: LaunchShape, blocks: int, limits: Limits) -> _Share:
    held = _held(launch, limits)
    room = limits.units * held
    if launch.cluster > 2:
        room = room * 30 // 33  # units that no whole cluster fits on
    units = min(limits.units, blocks)
    beside = min(blocks, room) / units
    return _Share(units, beside, math.ceil(blocks / max(room, 1)), beside * launch.threads / 32)


def _held(launch: LaunchShape, limits: Limits) -> int:
    """Blocks that a unit holds at a time."""
    if not limits.threads:
        return 1
    threads = max(launch.threads, 1)
    fits = [limits.blocks, limits.threads // threads, REGISTER_FILE // (_PER_THREAD * threads)]
    if launch.shared_bytes:
        fits.append(limits.shared_bytes // (launch.shared_bytes + SYSTEM_SHARED_BYTES))
    if launch.blocks_per_unit:
        fits.append(launch.blocks_per_unit)
    return max(1, min(fits))


def _bandwidth(launch: LaunchShape, share: _Share, limits: Limits) -> float:
    """Bytes per second of a block."""
    fair = limits.cache_bandwidth / (share.units * share.beside)
    if not limits.threads:
        return fair
    in_flight = launch.shared_bytes or _LOADS * launch.threads
    return min(fair, in_flight / _LATENCY)


def _product_rate(launch: LaunchShape, share: _Share, dtype: str, limits: Limits) -> float:
    """Operations of products per second of a block."""
    rate = limits.peak(dtype) / limits.units / share.beside
    if not limits.threads:
        return rate
    if limits.wants_bulk_copies and not launch.bulk_copies:
        rate *= _WITHOUT_TMA
    return rate * _PRODUCT_SHARE * math.pow(min(1.0, share.warps / _PRODUCT_WARPS), _PRODUCT_POWER)


def _other_rate(share: _Share, limits: Limits) -> float:
    """Elements per second of a block."""
    rate = limits.peak("") / limits.units / 2 / _INSTRUCTIONS / share.beside
    return rate * min(1.0, share.warps / _OTHER_WARPS) if limits.threads else rate


def tensor_bytes(params: Sequence[ParamRecord], dims: Mapping[str, int]) -> float:
    """Bytes of all tensors of a signature, each once; twice those read and written."""

    def size(param: ParamRecord) -> float:
        directions = 2 if param.access == "inout" else 1
        return math.prod(param.shape(dims)) * lookup(param.dtype).bits / 8 * directions

    return sum(size(param) for param in params if param.is_tensor)
