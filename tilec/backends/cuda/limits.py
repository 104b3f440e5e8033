"""What NVIDIA's GPUs can do at most.

Products per clock and multiprocessor from NVIDIA's architecture whitepapers (A100, Ada, H100): dense, two
operations for each multiply-add."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilec.backends.limits import Limits
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
#: Clocks that a trip of a product takes at least, where TMA brings its tiles.
TRIP = 220
#: Clocks that blocks of a cluster take to add up what each has of a tile: two of them, and each two more.
MEETING, MORE = 5500, 1500
#: The least capability with mma.sync as it is used here, and with instructions for 8-bit floats.
TENSOR_CORES, FLOAT8 = 80, 89


def has_wgmma(target: Target) -> bool:
    """Whether warpgroups multiply together, and bulk copies are counted by barriers: on sm_90a alone."""
    return target.gpu is not None and target.gpu.exact and target.gpu.capability == 90


def added_at_once(target: Target, dtype: str) -> int:
    """The most neighbours in global memory that one instruction adds to (PTX ISA, "red")."""
    assert target.gpu is not None
    newest = {"float32": 4, "float16": 8, "bfloat16": 8}
    return newest.get(dtype, 1) if target.gpu.capability >= 90 else 2 if dtype == "float16" else 1


def tensor_operations(target: Target, dtype: str) -> int:
    """Operations of a multiprocessor's tensor cores in a clock, on operands of a type that they have."""
    assert target.gpu is not None
    known = _TENSOR_CORES[max(known for known in _TENSOR_CORES if known <= target.gpu.capability)]
    return known["int8" if dtype == "uint8" else "float8" if dtype.startswith("float8") else dtype]


def gpu_limits(target: Target, facts: Mapping[str, Any]) -> Limits:
    """Of a GPU that the driver describes by ``facts``; none: a usual one of the target."""
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
        wants_bulk_copies=capability == 90 and target.gpu.exact,
        trip=TRIP / clock,
        meeting=(MEETING / clock, MORE / clock),
    )
