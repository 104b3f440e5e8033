"""What CPUs can do at most, by the facts of a machine: what the cost model of schedules counts with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilec.backends.limits import Limits
from tilec.targets import Target

#: Of a core: vector multiply-adds per clock; how much more features do for operands of few bits, the last one
#: that a target has (a tile product of AMX takes 16 clocks).
_FMA_PER_CLOCK = 2
_NARROW = (
    ("int8", "avxvnni", 4),
    ("int8", "vnni", 4),
    ("int8", "amx", 32),
    ("bfloat16", "avx512bf16", 2),
    ("bfloat16", "amx", 16),
    ("int8", "dotprod", 4),
    ("int8", "i8mm", 8),
    ("bfloat16", "bf16", 4),
)
_GHZ, _GBPS, _CORE_GBPS = 3.0, 40.0, 12.0


def cpu_limits(target: Target, facts: Mapping[str, Any], threads: int) -> Limits:
    """Of ``threads`` threads of a CPU, 0 for all of its cores."""
    cores = facts.get("cores") or 1
    units = min(threads, cores) if threads else cores
    clock = facts["clock_khz"] * 1e3 if facts.get("clock_khz") else _GHZ * 1e9
    single = 2 * _FMA_PER_CLOCK * target.lanes(32) * clock
    ops = {"": single, "float64": single / 2}
    ops |= {dtype: single * more for dtype, name, more in _NARROW if target.has(name)}
    alone = _CORE_GBPS * units * 1e9
    return Limits(units, ops, min(_GBPS * 1e9, alone), 5 * alone, 5e-7, 2e-7)
