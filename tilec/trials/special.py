"""Whether it is defined what a kernel makes of NaN and infinities."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tilec.ir.nodes import Stmt

#: Types that every NaN and infinity survives in.
_WIDE = ("float64", "float32", "tfloat32", "float16", "bfloat16", "float8_e5m2")


@lru_cache(maxsize=64)
def keeps_special(ir_text: str) -> bool:
    """Whether a kernel turns no float into an integer or a float without infinities: what becomes of NaN and
    infinities there is left to the machine."""
    from tilec.ir.nodes import walk
    from tilec.ir.text.parser import parse_kernel

    kernel = parse_kernel(ir_text)
    return not any(
        source in _WIDE and target not in _WIDE
        for stmt in walk(kernel.body)
        for source, target in _conversions(stmt)
    )


def _conversions(stmt: Stmt) -> Iterator[tuple[str, str]]:
    """Pairs of element types that a statement converts between."""
    from tvm import tirx

    from tilec.ir.exprs import scalar_dtype, walk
    from tilec.ir.nodes import Copy, Reduce, Scan
    from tilec.ir.traits import expressions

    if isinstance(stmt, (Copy, Reduce, Scan)):
        yield str(stmt.src.buffer.dtype), str(stmt.dst.buffer.dtype)
    for expr in expressions(stmt):
        for node in walk(expr):
            if isinstance(node, tirx.Cast):
                yield scalar_dtype(node.value), scalar_dtype(node)
