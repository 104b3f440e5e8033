"""Digits of a layout in a thread: of its lane, and of its warp; the index that digits spell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tvm.ir import Expr

    from tilec.backends.cuda.emit.context import DeviceContext
    from tilec.backends.cuda.emit.loop_digits import Part

WARP = 32


def thread_digit(space: str, stride: int, size: int, ctx: DeviceContext) -> Expr:
    """The value of a lane or warp digit in this thread."""
    place, count = (ctx.lane, WARP) if space == "lane" else (ctx.warp, ctx.warps)
    assert place is not None
    value = place if stride == 1 else tirx.truncdiv(place, tirx.const(stride, "int32"))
    return value if stride * size >= count else tirx.truncmod(value, tirx.const(size, "int32"))


def convert_sum(parts: Sequence[Part], dtype: str) -> Expr:
    """The index that the digits spell."""
    total: Expr = tirx.const(0, "int32")
    for part in parts:
        total = total + (part.value if part.weight == 1 else part.value * tirx.const(part.weight, "int32"))
    return total if dtype == "int32" else tirx.Cast(dtype, total)
