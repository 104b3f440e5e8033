"""wgmma: which products it takes, and how consumer warpgroups share a tile.

PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions": M is 64, N a multiple of 8 up to 256 (of integers
8, 24 or a multiple of 16; TVM's table ends at 224), K 32 bytes; both operands are read from shared memory in
128-byte swizzled rows. 16-bit operands may be stored with either of their dimensions contiguous, 8-bit ones
along K alone.
"""

from __future__ import annotations

from tilec.backends.cuda.analysis.products.mma import dtypes, extents
from tilec.backends.cuda.analysis.products.wgmma import (
    ROWS,
    STEP_BYTES,
    WIDEST,
    holds_product,
    instruction_types,
)
from tilec.backends.cuda.warp_roles.nodes import HANDED_ON, MOST_REGISTERS, WARPGROUP, Roles, WarpgroupTile
from tilec.backends.cuda.warp_roles.unfit import TooLarge, Unfit
from tilec.errors import Kind
from tilec.ir.nodes import Gemm
from tilec.lowering.emission.storage import element_bytes

#: Bytes of the rows that operands fall into.
ROW_BYTES = 128
#: Columns of the widest product of integers in TVM's table of instructions.
WIDEST_INTEGERS = 224

#: Registers that a consumer needs beside its accumulators.
_OTHER_REGISTERS = 24
#: Warps that load: those of a warpgroup where setmaxnreg, which takes whole ones, is used; eight where every
#: one of their threads moves data itself; else one, of which one thread starts the loads.
_SETTING, _GATHERING, _STARTING = 4, 8, 1
#: Rows of 128 bytes that the threads of loaders cover at once, 16 bytes each.
GATHERED_ROWS = _GATHERING * 4


def roles(warpgroups: int, pingpong: bool = False, gathers: bool = False) -> Roles:
    """The warps of a launch with so many consumer warpgroups. ``gathers``: loaders move data themselves."""
    if gathers:
        return Roles(warpgroups, None, pingpong, _GATHERING)
    registers = HANDED_ON.get((warpgroups, 1))
    return Roles(warpgroups, registers, pingpong, _STARTING if registers is None else _SETTING)


def warpgroup_tile(gemm: Gemm, warpgroups: int, whole: bool = True) -> WarpgroupTile:
    """What one consumer warpgroup issues per stage: warpgroups share the rows. Unfit where wgmma has no such
    product, or where rows along K are no ``whole`` boxes and that is asked for: the rest of a box is loaded
    for nothing."""
    types, sizes = dtypes(gemm), extents(gemm)
    spelled = _instruction_types(types)
    if spelled is None or sizes is None:
        raise Unfit(
            f"wgmma has no product of {types[0]} and {types[1]} into {types[2]}",
            remedy="multiply 16-bit or 8-bit floats into float32, or 8-bit integers into int32",
        )
    rows, columns, depth = sizes
    if rows % (ROWS * warpgroups):
        raise Unfit(
            f"{rows} rows are no multiple of {ROWS} for each of {warpgroups} warpgroups",
            remedy=f"choose tiles of a multiple of {ROWS * warpgroups} rows, or fewer threads",
        )
    _check_columns(columns, types[2], warpgroups)
    held = gemm.a.buffer.scope() == "local.fragment"
    _check_rows("A", gemm.trans_a, depth, types[0], whole and not held)
    _check_rows("B", not gemm.trans_b, depth, types[1], whole)
    return WarpgroupTile(
        rows=rows // ROWS // warpgroups,
        columns=columns,
        steps=depth * element_bytes(types[0]) // STEP_BYTES,
        types=spelled,
    )


def _check_columns(columns: int, dtype: str, warpgroups: int) -> None:
    """Unfit where no instruction has so many columns of sums, or threads lack its registers at launch."""
    if columns % 8 or columns > WIDEST:
        raise Unfit(f"{columns} columns are no multiple of 8 up to {WIDEST}", remedy="choose such an N tile")
    if dtype == "int32" and (columns > WIDEST_INTEGERS or (columns % 16 and columns not in (8, 24))):
        raise Unfit(
            f"{columns} columns of integers are not 8, 24 or a multiple of 16 up to {WIDEST_INTEGERS}",
            remedy="choose such an N tile",
        )
    if not holds_product(columns, (warpgroups + 1) * WARPGROUP):
        raise Unfit(
            f"{columns} columns take more registers than a thread of {warpgroups} warpgroups has at launch",
            remedy="choose a narrower N tile, or fewer threads",
        )


def holds(held: int, registers: int = MOST_REGISTERS) -> bool:
    """Whether ``registers`` of a thread suffice for those ``held`` for sums."""
    return held <= registers - _OTHER_REGISTERS


def check_registers(held: int) -> None:
    """TooLarge where the registers of a thread do not suffice for those ``held`` for sums."""
    if not holds(held):
        limit = MOST_REGISTERS - _OTHER_REGISTERS
        raise TooLarge(f"{held} accumulator registers a thread are more than {limit}", Kind.REGISTERS)


def _instruction_types(types: tuple[str, str, str]) -> str | None:
    """As `instruction_types`, without those of TF32 and of float16 sums, whose tiles no strategy lays out."""
    return None if types[0] == "float32" or types[2] == "float16" else instruction_types(types)


def _check_rows(name: str, across: bool, depth: int, dtype: str, whole: bool) -> None:
    """Whether an operand falls into rows of 128 bytes: along K, each ``whole`` if asked for, or ``across``
    it, where the last one may have columns that nothing reads."""
    size = element_bytes(dtype)
    if across and size != 2:
        raise Unfit(
            f"{name} of {dtype} must be contiguous along K",
            remedy=f"store {name} with K last, and transpose it",
        )
    if whole and not across and depth * size % ROW_BYTES:
        raise Unfit(
            f"rows of {depth} {dtype} in {name} are no multiple of {ROW_BYTES} bytes",
            remedy=f"choose a K tile of a multiple of {ROW_BYTES // size}",
        )
    step = STEP_BYTES // size
    if depth % step:
        raise Unfit(
            f"K = {depth} of {name} is no multiple of {step}",
            remedy=f"choose a K tile of a multiple of {step}",
        )
