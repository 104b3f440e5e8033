"""What devices can do at most: products per second by type, bytes per second, launches.

Nominal figures: what the driver says of the device where there is one, else the table of usual devices of a
target. Each family has its own (`tilec.backends.cpu.limits`, `tilec.backends.cuda.limits`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

#: Operand types whose rate is that of another one; 4-bit floats are multiplied as bfloat16 where a device has
#: no rate of their own.
_RATES = {"uint8": ("int8",), "float4_e2m1fn": ("float4", "bfloat16")}


@dataclass(frozen=True)
class Limits:
    """``units``: multiprocessors or cores; ``ops``: operations per second of one unit by operand type ("" for
    the rest); ``bandwidth`` of memory and of the cache before it, bytes per second; ``launch``, ``block``:
    seconds that a launch and a block cost; ``shared_bytes``, ``threads``, ``blocks``: of a unit.
    ``wants_bulk_copies``: products reach their rate where a unit of the device brings the tiles (TMA);
    ``trip``: seconds that a trip of such a product takes at least; ``meeting``: seconds that two blocks that
    share the K of a tile take to add up, and each two more."""

    units: int
    ops: Mapping[str, float]
    bandwidth: float
    cache_bandwidth: float
    launch: float
    block: float
    shared_bytes: int = 0
    threads: int = 0
    blocks: int = 1
    wants_bulk_copies: bool = False
    trip: float = 0.0
    meeting: tuple[float, float] = (0.0, 0.0)

    def peak(self, dtype: str) -> float:
        """Operations per second of the whole device for operands of a type."""
        names = ("float8",) if dtype.startswith("float8") else _RATES.get(dtype, (dtype,))
        return self.units * next((self.ops[name] for name in names if name in self.ops), self.ops[""])

    def least_seconds(self, flops: float, moved: float, dtype: str) -> float:
        """The roofline: no kernel that does so much can be faster."""
        return max(flops / self.peak(dtype), moved / self.bandwidth)
