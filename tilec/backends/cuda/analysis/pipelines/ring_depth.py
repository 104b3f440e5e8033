"""How many stages a ring wants, so that tensor cores do not wait for loads.

A stage is filled again when the products of its trip have read it, and is wanted so many trips later as there
are stages: what lies between has to cover the way of a load. Deeper than its author asks for a ring may
always be, where there is room.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.products.mma import extents
from tilec.backends.cuda.limits import tensor_operations
from tilec.ir.nodes import Block, Unscaled, walk

if TYPE_CHECKING:
    from tilec.targets import Target

#: Clocks from giving a stage back to its next contents being read, as an H200 shows them at 8192^3: tiles of
#: 128 x 128 x 64 (512 clocks a trip) take 1956, 1526 and 1524 us with 3, 4 and 5 stages, those of
#: 128 x 128 x 32 (256 clocks) 3358, 2325, 1723 and 1720 us with 3, 4, 6 and 8.
LATENCY = 1024
#: The same where memory answers, not L2: of blocks with one tile each 512 x 4096 x 4096 takes 27.8, 25.7 and
#: 25.6 us with 4, 5 and 6 stages of 128 x 128 x 64, 128 x 4096 x 4096 25.9, 23.1 and 22.7.
COLD_LATENCY = 1536
#: Stages that products hold: that of the one under way, and that of the next one.
_HELD = 2


def wanted_stages(body: Block, target: Target, blocks: int = 1, ways: int = 1, latency: int = LATENCY) -> int:
    """The stages of rings whose trips are the products of ``body``; 0 where it multiplies nothing.
    ``blocks``: how many share the tensor cores; ``ways``: loads that wait for each other, two where the place
    of one is looked up (rows of 8 experts, 1024 clocks a trip: 969 and 567 us with 2 and 4 stages);
    ``latency``: clocks that a load takes."""
    clocks = blocks * trip_clocks(body, target)
    if clocks == 0:
        return 0
    return _HELD + -(-ways * latency // clocks)


def trip_clocks(body: Block, target: Target) -> int:
    """Clocks of a multiprocessor's tensor cores for the products of a block."""
    return sum(_clocks(gemm, target) for gemm in _products(body))


def _products(body: Block) -> Iterable[Unscaled]:
    return (stmt for stmt in walk(body) if isinstance(stmt, Unscaled))


def _clocks(gemm: Unscaled, target: Target) -> int:
    """Of sparse operands those of the values that are held."""
    rows, columns, depth = extents(gemm) or (0, 0, 0)
    return -(-2 * rows * columns * depth // tensor_operations(target, str(gemm.b.buffer.dtype)))
