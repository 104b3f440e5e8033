"""What NVIDIA's GPUs can do at most.

Products per clock and multiprocessor from NVIDIA's architecture whitepapers (A100, Ada, H100, RTX Blackwell)
and by the figures of data sheets (B200, B300, Jetson Thor, GB10): dense, two operations for each multiply and
add. Those of 100, 103 and 110 are what tcgen05 has, as no document tells the rate of mma.sync there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from tilec.backends.limits import Limits
from tilec.targets import Target

_Fact = TypeVar("_Fact")

#: Capability -> operand type -> operations per clock and multiprocessor on tensor cores.
_TENSOR_CORES: dict[int, dict[str, int]] = {
    80: {"float64": 128, "float16": 2048, "bfloat16": 2048, "float32": 1024, "int8": 4096},
    86: {"float64": 4, "float16": 1024, "bfloat16": 1024, "float32": 512, "int8": 2048},
    89: {"float64": 4, "float16": 1024, "bfloat16": 1024, "float32": 512, "int8": 2048, "float8": 2048},
    90: {"float64": 256, "float16": 4096, "bfloat16": 4096, "float32": 2048, "int8": 8192, "float8": 8192},
    100: {"float64": 128, "float16": 8192, "bfloat16": 8192, "float32": 4096, "int8": 16384, "float8": 16384},
    103: {"float64": 4, "float16": 8192, "bfloat16": 8192, "float32": 4096, "int8": 512, "float8": 16384},
    110: {"float64": 4, "float16": 8192, "bfloat16": 8192, "float32": 4096, "int8": 16384, "float8": 16384},
    120: {
        "float64": 4,
        "float16": 1024,
        "bfloat16": 1024,
        "float32": 512,
        "int8": 2048,
        "float8": 2048,
        "float4": 4096,
    },
}
#: Capability -> multiprocessors, GHz, GB/s, bytes of L2 of a usual device: A100, A40, L40S, H100, B200, B300,
#: Jetson Thor, RTX PRO 6000, GB10.
_USUAL = {
    80: (108, 1.41, 1555.0, 40 << 20),
    86: (84, 1.74, 696.0, 6 << 20),
    89: (142, 2.52, 864.0, 96 << 20),
    90: (132, 1.98, 3350.0, 50 << 20),
    100: (148, 1.85, 8000.0, 126 << 20),
    103: (148, 1.92, 8000.0, 126 << 20),
    110: (20, 1.57, 273.0, 32 << 20),
    120: (188, 2.6, 1792.0, 128 << 20),
    121: (48, 2.42, 273.0, 24 << 20),
}
#: Shared memory of a multiprocessor, threads and blocks that it holds, by capability.
_HOLDS = {
    80: (164 << 10, 2048, 32),
    86: (100 << 10, 1536, 16),
    89: (100 << 10, 1536, 24),
    90: (228 << 10, 2048, 32),
    100: (228 << 10, 2048, 32),
    110: (228 << 10, 1536, 24),
    120: (100 << 10, 1536, 24),
}
#: Clocks that a trip of a product takes at least, where TMA brings its tiles.
TRIP = 220
#: Clocks that blocks of a cluster take to add up what each has of a tile: two of them, and each two more.
MEETING, MORE = 5500, 1500
#: The least capability with barriers of some warps, with dp4a, with mma.sync as it is used here, with 8-bit
#: floats, with bulk copies.
_NAMED_BARRIERS_FROM = 20
_BYTE_DOTS_FROM, _TENSOR_CORES_FROM, _FLOAT8_FROM, _BULK_FROM = 61, 80, 89, 90


def has_wgmma(target: Target) -> bool:
    """Whether warpgroups multiply together: on sm_90a alone."""
    return target.gpu is not None and target.gpu.exact and target.gpu.capability == 90


def has_tma(target: Target) -> bool:
    """Whether there are bulk copies of boxes, barriers that count their bytes, clusters, launches that begin
    early, and stmatrix."""
    return _is_from(_BULK_FROM, target)


def has_tensor_memory(target: Target) -> bool:
    """Whether a thread issues products (tcgen05) whose sums lie in tensor memory, which is no part of plain
    targets and of majors behind 11."""
    return target.gpu is not None and target.gpu.capability // 10 in (10, 11) and hands_registers_on(target)


def has_tensor_integers(target: Target) -> bool:
    """Whether those products (tcgen05) have 8-bit integers: on 10.0 and 11.0, in code for one of them alone
    (PTX ISA, "tcgen05.mma", Target ISA Notes of .kind::i8; ptxas 12.9 refuses sm_100f, sm_103a, sm_103f)."""
    assert target.gpu is not None
    return has_tensor_memory(target) and target.gpu.exact and target.gpu.capability in (100, 110)


def has_tensor_cores(target: Target) -> bool:
    """Whether warps multiply by mma.sync."""
    return _is_from(_TENSOR_CORES_FROM, target)


def has_named_barriers(target: Target) -> bool:
    """Whether some warps of a block can wait for each other: on all of NVIDIA's GPUs (PTX ISA, "bar": with a
    number of threads from sm_20 on)."""
    return _is_from(_NAMED_BARRIERS_FROM, target)


def has_whole_doubles(target: Target) -> bool:
    """Whether mma.sync of float64 has 16 rows, where GPUs before have eight."""
    return _is_from(_BULK_FROM, target)


def has_byte_dots(target: Target) -> bool:
    """Whether threads multiply four bytes at a time (dp4a)."""
    return _is_from(_BYTE_DOTS_FROM, target)


def has_float8(target: Target) -> bool:
    """Whether instructions convert and multiply 8-bit floats."""
    return _is_from(_FLOAT8_FROM, target)


def has_scaled_products(target: Target) -> bool:
    """Whether mma.sync takes scales: on GPUs of major 12, not in plain targets (PTX ISA, "mma", "Target ISA
    Notes": sm_120a, sm_121a, and their family)."""
    return target.gpu is not None and target.gpu.capability // 10 == 12 and hands_registers_on(target)


def _is_from(capability: int, target: Target) -> bool:
    return target.gpu is not None and target.gpu.capability >= capability


def hands_registers_on(target: Target) -> bool:
    """Whether warpgroups hand registers on by setmaxnreg, which is no part of plain targets."""
    return has_tma(target) and target.gpu is not None and (target.gpu.exact or target.gpu.of_family)


def added_at_once(target: Target, dtype: str) -> int:
    """The most neighbours in global memory that one instruction adds to (PTX ISA, "red")."""
    newest = {"float32": 4, "float16": 8, "bfloat16": 8}
    return newest.get(dtype, 1) if has_tma(target) else 2 if dtype == "float16" else 1


def tensor_operations(target: Target, dtype: str) -> int:
    """Operations of a multiprocessor's tensor cores in a clock, on operands of a type that they have."""
    assert target.gpu is not None
    known = _nearest(_TENSOR_CORES, target.gpu.capability)
    return known["int8" if dtype == "uint8" else "float8" if dtype.startswith("float8") else dtype]


def _nearest(table: Mapping[int, _Fact], capability: int) -> _Fact:
    """What a table says of a capability: its own row, or that of the next lower one that has a row."""
    return table[max(known for known in table if known <= capability)]


def gpu_limits(target: Target, facts: Mapping[str, Any]) -> Limits:
    """Of a GPU that the driver describes by ``facts``; none: a usual one of the target."""
    assert target.gpu is not None
    capability = target.gpu.capability
    units, ghz, gbps, _ = _nearest(_USUAL, capability)
    units = facts.get("multiprocessors") or units
    clock = facts["clock_khz"] * 1e3 if facts.get("clock_khz") else ghz * 1e9
    if facts.get("memory_khz") and facts.get("bus_bits"):
        gbps = 2 * facts["memory_khz"] * 1e3 * facts["bus_bits"] / 8 * 1e-9
    ops = {dtype: count * clock for dtype, count in _nearest(_TENSOR_CORES, capability).items()}
    shared, threads, blocks = _nearest(_HOLDS, capability)
    return Limits(
        units,
        {**ops, "": 256 * clock},
        gbps * 1e9,
        1.5 * gbps * 1e9,
        2.5e-6,
        0.0,
        shared,
        threads,
        blocks,
        wants_bulk_copies=has_wgmma(target),
        trip=TRIP / clock,
        meeting=(MEETING / clock, MORE / clock),
    )
