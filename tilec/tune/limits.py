"""What devices can do at most: products per second by type, bytes per second, launches.

Nominal figures: multiprocessors, clocks and bus widths come from the driver of the device where there is one,
else from the table of usual devices of a target. Products per clock and multiprocessor from NVIDIA's
architecture whitepapers (A100, Ada, H100): dense, two operations for each multiply-add.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilec.targets import Target

#: Capability -> operand type -> operations per clock and multiprocessor on tensor cores.
_TENSOR_CORES: dict[int, dict[str, int]] = {
    80: {"float16": 2048, "bfloat16": 2048, "float32": 1024, "int8": 4096},
    86: {"float16": 1024, "bfloat16": 1024, "float32": 512, "int8": 2048},
    89: {"float16": 1024, "bfloat16": 1024, "float32": 512, "int8": 2048, "float8": 2048},
    90: {"float16": 4096, "bfloat16": 4096, "float32": 2048, "int8": 8192, "float8": 8192},
}
#: Capability -> multiprocessors, GHz, GB/s, bytes of L2 of a usual device: A100, A40, L40S, H100.
_USUAL = {
    80: (108, 1.41, 1555.0, 40 << 20),
    86: (84, 1.74, 696.0, 6 << 20),
    89: (142, 2.52, 864.0, 96 << 20),
    90: (132, 1.98, 3350.0, 50 << 20),
}
#: Shared memory of a multiprocessor, threads and blocks that it holds, by capability.
_HOLDS = {
    80: (164 << 10, 2048, 32),
    86: (100 << 10, 1536, 16),
    89: (100 << 10, 1536, 24),
    90: (228 << 10, 2048, 32),
}
#: Of a core: vector multiply-adds per clock; what vnni and avx512bf16 do for operands of few bits.
_FMA_PER_CLOCK = 2
_NARROW = {"int8": ("vnni", 4), "bfloat16": ("avx512bf16", 2)}
_CPU_GHZ, _CPU_GBPS, _CPU_CORE_GBPS = 3.0, 40.0, 12.0


@dataclass(frozen=True)
class Limits:
    """``units``: multiprocessors or cores; ``ops``: operations per second of one unit by operand type ("" for
    the rest); ``bandwidth`` of memory and of the cache before it, bytes per second; ``launch``, ``block``:
    seconds that a launch and a block cost; ``shared_bytes``, ``threads``, ``blocks``: of a unit.
    ``wants_tma``: products reach their rate where TMA brings the tiles."""

    units: int
    ops: Mapping[str, float]
    bandwidth: float
    cache_bandwidth: float
    launch: float
    block: float
    shared_bytes: int = 0
    threads: int = 0
    blocks: int = 1
    wants_tma: bool = False

    def peak(self, dtype: str) -> float:
        """Operations per second of the whole device for operands of a type."""
        family = "float8" if dtype.startswith("float8") else "int8" if dtype == "uint8" else dtype
        return self.units * self.ops.get(family, self.ops[""])

    def least_seconds(self, flops: float, moved: float, dtype: str) -> float:
        """The roofline: no kernel that does so much can be faster."""
        return max(flops / self.peak(dtype), moved / self.bandwidth)


def limits_of(target: Target, facts: Mapping[str, Any] | None = None, threads: int = 0) -> Limits:
    """The limits of a device with code of ``target``. ``facts``: what `tilec.portable.runner.devices` says of
    it, None for a usual device; ``threads``: of a CPU, 0 for all."""
    return _cpu(target, facts or {}, threads) if target.is_cpu else _gpu(target, facts or {})


def _gpu(target: Target, facts: Mapping[str, Any]) -> Limits:
    assert target.gpu is not None
    capability = max(known for known in _USUAL if known <= target.gpu.capability)
    units, ghz, gbps, _ = _USUAL[capability]
    units = facts.get("multiprocessors") or units
    clock = facts["clock_khz"] * 1e3 if facts.get("clock_khz") else ghz * 1e9
    if facts.get("memory_khz") and facts.get("bus_bits"):
        gbps = 2 * facts["memory_khz"] * 1e3 * facts["bus_bits"] / 8 * 1e-9
    ops = {dtype: count * clock for dtype, count in _TENSOR_CORES[capability].items()}
    shared, threads, blocks = _HOLDS[capability]
    plain = {"": 256 * clock, "float64": 128 * clock}
    return Limits(
        units,
        {**ops, **plain},
        gbps * 1e9,
        1.5 * gbps * 1e9,
        2.5e-6,
        0.0,
        shared,
        threads,
        blocks,
        wants_tma=capability == 90 and target.gpu.exact,
    )


def _cpu(target: Target, facts: Mapping[str, Any], threads: int) -> Limits:
    cores = facts.get("cores") or 1
    units = min(threads, cores) if threads else cores
    clock = facts["clock_khz"] * 1e3 if facts.get("clock_khz") else _CPU_GHZ * 1e9
    single = 2 * _FMA_PER_CLOCK * target.lanes(32) * clock
    ops = {"": single, "float64": single / 2}
    ops |= {dtype: single * more for dtype, (name, more) in _NARROW.items() if target.has(name)}
    bandwidth = min(_CPU_GBPS, _CPU_CORE_GBPS * units) * 1e9
    return Limits(units, ops, bandwidth, 5 * bandwidth, 5e-7, 2e-7)
