"""What AMD GPUs can do at most: AMD's data sheets of a usual device of each processor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilec.backends.hip.chips import chip_of
from tilec.backends.limits import Limits
from tilec.targets import Target

#: Blocks of a compute unit, and threads: 32 waves of 64.
_BLOCKS, _THREADS = 32, 2048
#: Operations of a compute unit in a clock on float32 and float64 without matrix instructions.
_PLAIN, _DOUBLE = 256, 128


@dataclass(frozen=True)
class _Usual:
    """``units``, ``ghz``, memory in ``gbps``; operations of a unit in a clock on 16-bit and 8-bit types,
    on float64 where that has matrix instructions, and on 4-bit floats where these have."""

    device: str
    units: int
    ghz: float
    gbps: float
    half: int
    byte: int
    double: int = _DOUBLE
    nibble: int = 0


_USUAL = {
    "gfx950": _Usual("MI355X", 256, 2.4, 8000, 4096, 8192, 128, 16384),
    "gfx942": _Usual("MI300X", 304, 2.1, 5300, 2048, 4096, 256),
    "gfx90a": _Usual("a half of an MI250X", 110, 1.7, 1600, 1024, 1024, 256),
    "gfx1201": _Usual("RX 9070 XT", 64, 2.97, 640, 1024, 2048),
    "gfx1200": _Usual("RX 9060 XT", 32, 3.13, 320, 1024, 2048),
    "gfx1151": _Usual("Radeon 8060S", 40, 2.9, 256, 512, 512),
    "gfx1100": _Usual("RX 7900 XTX", 96, 2.5, 960, 512, 512),
}


def hip_limits(target: Target, facts: Mapping[str, Any]) -> Limits:
    """Of a GPU that HIP describes by ``facts``; none: a usual one of the target."""
    usual = _USUAL[target.name]
    clock = usual.ghz * 1e9
    units = facts.get("multiprocessors") or usual.units
    return Limits(
        units,
        _operations(usual, clock),
        usual.gbps * 1e9,
        1.5 * usual.gbps * 1e9,
        5e-6,
        0.0,
        chip_of(target).shared_bytes,
        _THREADS,
        _BLOCKS,
    )


def _operations(usual: _Usual, clock: float) -> dict[str, float]:
    halves = dict.fromkeys(("float16", "bfloat16"), usual.half * clock)
    bytes_ = dict.fromkeys(("int8", "float8"), usual.byte * clock)
    nibbles = {"float4": usual.nibble * clock} if usual.nibble else {}
    return {**halves, **bytes_, **nibbles, "float64": usual.double * clock, "": _PLAIN * clock}
