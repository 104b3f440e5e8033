"""What Apple's GPUs can do at most: a usual device, by Apple's figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilec.backends.limits import Limits
from tilec.backends.metal.devices import SHARED_BYTES

#: An M2: cores, clock, bytes of memory in a second, operations of a core in a clock.
_UNITS, _CLOCK, _BYTES, _OPERATIONS = 10, 1.4e9, 100e9, 256
#: Blocks of a core, and threads.
_BLOCKS, _THREADS = 24, 2048


def metal_limits(facts: Mapping[str, Any]) -> Limits:
    """Of a GPU that the system describes by ``facts``; none: a usual one. 16-bit types multiply no faster
    than float32."""
    units = facts.get("multiprocessors") or _UNITS
    rates = {"float16": _OPERATIONS * _CLOCK, "": _OPERATIONS * _CLOCK}
    return Limits(units, rates, _BYTES, 2 * _BYTES, 1e-5, 0.0, SHARED_BYTES, _THREADS, _BLOCKS)
