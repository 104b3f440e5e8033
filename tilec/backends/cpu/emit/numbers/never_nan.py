"""Variables that hold a number whatever is computed: never NaN."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import TensorLoad

from tilec.ir.nodes import Alloc, Atomic, Block, Store, walk

if TYPE_CHECKING:
    from tvm.ir import Expr, Var


def stays_number(alloc: Alloc, rest: Block) -> bool:
    """Whether a variable starts as a number and ``rest`` (what follows in its block) only ever replaces it by
    the maximum or minimum of itself and something: max and min give the operand that is a number."""
    if not isinstance(alloc.init, tirx.FloatImm) or math.isnan(float(alloc.init.value)):
        return False
    if any(isinstance(stmt, Atomic) and stmt.buffer.same_as(alloc.buffer) for stmt in walk(rest)):
        return False
    stores = [stmt for stmt in walk(rest) if isinstance(stmt, Store) and stmt.buffer.same_as(alloc.buffer)]
    return all(_is_extreme_of(store.value, alloc.buffer) for store in stores)


def _is_extreme_of(value: Expr, buffer: Var) -> bool:
    if not isinstance(value, (tirx.Max, tirx.Min)):
        return False
    return any(isinstance(side, TensorLoad) and side.source.same_as(buffer) for side in (value.a, value.b))
