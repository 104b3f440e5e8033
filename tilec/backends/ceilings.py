"""What a machine can do at most, measured: operations per second by element type, bytes per second copied.

Measured once, then kept in the cache folder under the machine's name and the probe's text. A type without an
instruction of its own counts at the rate of the type that it is widened to.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tilec.cache import Store, digest
from tilec.settings import read_settings

_KIND = "ceilings"
#: Type to those whose rate it has where it has none of its own.
_WIDENED = {
    "bfloat16": ("float16", "float32"),
    "float8_e4m3fn": ("float16", "float32"),
    "float8_e5m2": ("float8_e4m3fn", "float16", "float32"),
    "float4_e2m1fn": (),
    "uint8": ("int8", "float32"),
    "int8": ("float32",),
}


@dataclass(frozen=True)
class Ceilings:
    """``device`` names what was measured; ``flops``: operations per second of products by element type;
    ``bandwidth``: bytes per second of a copy, reads and writes together."""

    device: str
    flops: Mapping[str, float]
    bandwidth: float

    def rate(self, dtype: str) -> float | None:
        """Operations per second of a type; None where nothing like it was measured."""
        candidates = (dtype, *_WIDENED.get(dtype, ("float32",)))
        return next((self.flops[name] for name in candidates if name in self.flops), None)

    def compute_seconds(self, flops: Mapping[str, float]) -> float | None:
        """The least time that products take, by their type."""
        rates = {dtype: self.rate(dtype) for dtype in flops}
        total = 0.0
        for dtype, count in flops.items():
            rate = rates[dtype]
            if rate is None:
                return None
            total += count / rate
        return total

    def memory_seconds(self, size: float) -> float:
        """The least time that so many bytes take."""
        return size / self.bandwidth


def kept(name: str, probe: str, measure: Callable[[], Ceilings]) -> Ceilings:
    """The ceilings of the device ``name`` by the probe with this text: kept ones, else measured now."""
    settings = read_settings()
    store, key = Store(settings.cache_dir), digest(name, probe)
    found = store.get(_KIND, key) if settings.cache else None
    if found is not None:
        return Ceilings(**json.loads(found))
    made = measure()
    if settings.cache:
        text = {"device": made.device, "flops": dict(made.flops), "bandwidth": made.bandwidth}
        store.put(_KIND, key, json.dumps(text).encode())
    return made
