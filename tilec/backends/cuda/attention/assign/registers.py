"""The registers of threads that compute, and what fragments take of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilec.backends.cuda.device.floats import PAIRED, SMALL_PAIRED
from tilec.ir.exprs import int_value
from tilec.lowering.emission.storage import element_bytes
from tilec.targets import MOST_REGISTERS

if TYPE_CHECKING:
    from tvm.ir import Var

#: Registers that a consumer thread needs beside fragments, by blocks that share a multiprocessor. Where two
#: have fewer the assembler makes products wait for each other (heads of 64, tiles of 128 x 64 on an H200: 355
#: TFLOP/s with 14 and slopes, 408 with 30, where one product is under way at a time; 427 and 440 without).
_OTHER_REGISTERS = {1: 20, 2: 22}


def most_words(handed_on: tuple[int, int] | None, together: int) -> int:
    """The registers that fragments of a thread may take. ``handed_on``: those of a loading and of a computing
    thread, None where all keep what they have; ``together``: blocks that share a multiprocessor."""
    return (handed_on[1] if handed_on else MOST_REGISTERS) - _OTHER_REGISTERS[together]


def words(buffer: Var, warpgroups: int) -> int:
    """Registers of a thread for a fragment; rows have a value for each of two rows in each lane."""
    shape = [int_value(extent) or 1 for extent in buffer.shape]
    if len(shape) == 1:
        return 2
    elements = shape[0] * shape[1] // (128 * warpgroups)
    dtype = str(buffer.dtype)
    packed = dtype in PAIRED or dtype in SMALL_PAIRED
    return elements * element_bytes(dtype) // 4 if packed else elements
