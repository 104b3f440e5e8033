"""What lanes of a warp tell each other: shuffles, votes, barriers of a warp; and values that all of them
have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

from tilec.backends.cuda.device.helper import C_NAMES, Helper, Lanes

#: The mask of all lanes of a warp.
ALL_LANES = 0xFFFFFFFF
_TEXT = """
__device__ __forceinline__ {result} {name}({parameters}) {{
  return {body};
}}
"""
_VOTES = {"any": "int", "all": "int", "ballot": "unsigned", "match_any": "unsigned"}


@cache
def shuffle(kind: str, dtype: str, width: int) -> Helper:
    """The value of another lane among ``width``; ``kind``: "xor_", "up_", "down_" or ""."""
    name, function, own = f"tilec_shfl_{kind}{dtype}_{width}", f"__shfl_{kind}sync", C_NAMES[dtype]
    body = f"{function}(mask, value, lane, {width})"
    parameters = f"unsigned mask, {own} value, int lane"

    def meaning(lanes: Lanes, mask: Any, value: Any, lane: Any) -> Any:
        return lanes.cuda(function, mask, value, lane, width, dtype)

    return Helper(name, _TEXT.format(result=own, name=name, parameters=parameters, body=body), meaning)


def _among_all(name: str, function: str, dtype: str, operand: str) -> Helper:
    own = C_NAMES[dtype]
    body = f"{function}(0xffffffffu, value, {operand})"
    text = _TEXT.format(result=own, name=name, parameters=f"{own} value, int {operand}", body=body)

    def meaning(lanes: Lanes, value: Any, other: Any) -> Any:
        return lanes.cuda(function, ALL_LANES, value, other, dtype)

    return Helper(name, text, meaning)


@cache
def exchange(dtype: str) -> Helper:
    """The value of the lane whose number differs in the bits of a mask."""
    return _among_all(f"tilec_shuffle_xor_{dtype}", "__shfl_xor_sync", dtype, "mask")


@cache
def from_lane(kind: str, dtype: str) -> Helper:
    """The value of the lane so far "up" or "down", or of a lane by its number ("")."""
    function = f"__shfl_{kind}_sync" if kind else "__shfl_sync"
    return _among_all(f"tilec_shuffle_{kind or 'from'}_{dtype}", function, dtype, "operand")


@cache
def vote(kind: str, dtype: str) -> Helper:
    """A vote of the lanes of a mask."""
    name, function, result = f"tilec_{kind}_{dtype}", f"__{kind}_sync", _VOTES[kind]
    parameters = f"unsigned mask, {C_NAMES[dtype]} value"
    text = _TEXT.format(result=result, name=name, parameters=parameters, body=f"{function}(mask, value)")
    return Helper(name, text, lambda lanes, mask, value: lanes.cuda(function, mask, value))


#: The lanes that run.
ACTIVE = Helper(
    "tilec_active",
    _TEXT.format(result="unsigned", name="tilec_active", parameters="", body="__activemask()"),
    lambda lanes: lanes.cuda("__activemask"),
)


@cache
def warp_sync(mask: int | None) -> Helper:
    """The lanes of a mask, or those that run, wait for each other."""
    name = "tilec_sync_active" if mask is None else f"tilec_sync_{mask:x}"
    which = "__activemask()" if mask is None else f"{mask:#x}u"
    code = f"__device__ __forceinline__ void {name}() {{ __syncwarp({which}); }}"
    return Helper(name, code, lambda lanes: lanes.cuda("__syncwarp"))


def _meet(lanes: Lanes) -> Iterator[str]:
    yield from lanes.cuda("__syncthreads")


#: The threads of a block meet, and see what they wrote to shared memory.
SHARED_SYNC = Helper("tilec_sync_shared", """
__forceinline__ __device__ void tilec_sync_shared() { __syncthreads(); }
""", _meet)  # fmt: skip


def _first(lanes: Lanes, value: Any) -> Any:
    return lanes.cuda("__shfl_sync", ALL_LANES, value, 0, "int32")


#: An int32 that all lanes of a warp know to be equal, so that what follows from it is computed once.
UNIFORM = Helper(
    "tilec_uniform",
    "__forceinline__ __device__ int tilec_uniform(int value) {\n"
    "  return __shfl_sync(0xffffffffu, value, 0);\n}\n",
    _first,
)
#: The same in one line.
UNIFORM_LINE = Helper("tilec_uniform", """
__forceinline__ __device__ int tilec_uniform(int value) { return __shfl_sync(0xffffffffu, value, 0); }
""", _first)  # fmt: skip


#: The same number, of which the assembler does not know that: what follows from it is not kept.
ANEW = Helper("tilec_anew", """
__forceinline__ __device__ int tilec_anew(int value) { asm volatile("" : "+r"(value)); return value; }
""", lambda lanes, value: value)  # fmt: skip


@cache
def one_computation(dtype: str) -> Helper:
    """The same number, of which TVM does not know that: it puts the value of a name in the name's place,
    under each condition that stands around, and a quotient by a run-time number is some 100 instructions."""
    name, own = f"tilec_once_{dtype}", C_NAMES[dtype]
    text = _TEXT.format(result=own, name=name, parameters=f"{own} value", body="value")
    return Helper(name, text, lambda lanes, value: value)


# ---- the grid ----


@cache
def grid_extent(axis: str) -> Helper:
    """How many blocks the grid has along an axis."""
    name = f"tilec_grid_{axis}"
    return Helper(name, f"""
__device__ __forceinline__ unsigned {name}() {{ return gridDim.{axis}; }}
""", lambda lanes: lanes.place(f"gridDim.{axis}"))  # fmt: skip


#: The same along the first axis, signed.
GRID_BLOCKS = Helper(
    "tilec_grid_blocks",
    "__forceinline__ __device__ int tilec_grid_blocks() { return int(gridDim.x); }\n",
    lambda lanes: lanes.place("gridDim.x"),
)


def _pin(name: str, kind: str, count: int) -> Helper:
    letter = "f" if kind == "float" else "r"
    return Helper(
        name,
        f"__forceinline__ __device__ void {name}({kind}* values) {{\n"
        f"#pragma unroll\n  for (int i = 0; i < {count}; ++i)"
        f' asm volatile("" : "+{letter}"(values[i]) :: "memory");\n}}\n',
        lambda lanes, values: None,
    )


@cache
def pin(dtype: str, count: int) -> Helper:
    """Keeps what reads ``count`` registers behind this point: the C++ compiler does not know that
    asynchronous products write them until they are waited for."""
    kind = "float" if dtype == "float32" else "unsigned"
    return _pin(f"tilec_pin_{kind}_{count}", kind, count)


@cache
def pin_sums(count: int) -> Helper:
    """The same of sums in float32."""
    made = _pin(f"tilec_pin_{count}", "float", count)
    return replace(made, text=f"\n{made.text}")
