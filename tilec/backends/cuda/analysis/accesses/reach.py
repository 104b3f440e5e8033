"""How far accesses of shared and global memory reach: between which numbers each of their indices lies.

What one loop does to columns 0 to 63 and another to columns 64 to 127 are different elements, whichever
threads have them.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, TypeAlias

from tvm import tirx
from tvm.ir import Range

from tilec.backends.cuda.analysis.accesses.owners import Each

if TYPE_CHECKING:
    from tilec.backends.cuda.analysis.accesses.owners import Known
    from tilec.backends.cuda.nodes import ThreadLoop
    from tilec.lowering.analysis.accesses import Access

#: The first and the last number of an index.
Ends: TypeAlias = "tuple[int, int] | None"
#: Those of each index of an access; None where they are not known.
Box: TypeAlias = "tuple[Ends, ...]"


def reach(item: Access, loop: ThreadLoop | Each, known: Known, span: tuple[int, int] | None = None) -> Box:
    """The box of what an access names over all iterations of ``loop``, as `in_loop` spells it; of threads one
    by one over those of a group, if ``span`` says the first of them and how many they are."""
    numbers = _of_group(loop, span) if isinstance(loop, Each) and span else list(map(range, loop.extents))
    ranges = {
        var: Range(*(tirx.const(end, var.ty.dtype) for end in (values.start, values.stop)))
        for var, values in zip(loop.vars, numbers, strict=True)
    }
    return tuple(known.bound(index, ranges) for index in item.indices)


def _of_group(each: Each, span: tuple[int, int]) -> list[range]:
    """What the digits of threads count in a group: the slowest one only what its first and last thread
    have."""
    numbers = list(map(range, each.extents))
    slowest = max((axis for axis, extent in enumerate(each.extents) if extent > 1), default=0)
    step, first, last = prod(each.extents[:slowest]), span[0], sum(span) - 1
    numbers[slowest] = range(first // step, last // step + 1)
    return numbers


def widened(ends: Ends, more: int) -> Ends:
    """Numbers from those of ``ends`` to ``more`` beyond them."""
    return None if ends is None else (ends[0], ends[1] + more)


def are_apart(first: Box, other: Box) -> bool:
    """Whether no element is in both boxes."""
    pairs = zip(first, other, strict=False)
    return any(a and b and (a[1] < b[0] or b[1] < a[0]) for a, b in pairs)
