"""Exponents of powers are multiply-adds, where the author's fast math lets them be."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.warp_roles.epilogue import call_name
from tilec.ir.exprs import dtype_of, same, transform, uses
from tilec.ir.nodes import Block, Kernel, Launch, Parallel, Stmt
from tilec.ir.options import FAST_MATH
from tilec.lowering.passes.base import Pass, rewrite_blocks, rewrite_launches
from tilec.lowering.rewrite import map_stmt

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.targets import Target

#: By what an exponent of each is multiplied for base 2.
_TO_BASE_2 = {"exp2": 1.0, "exp": math.log2(math.e)}
#: Powers of two that go into an exponent: what is left of float32's range holds any weight.
_MOST = 64


class FuseExponents(Pass):
    """In: kernels with fast math whose loops over elements take powers ``exp2((x - y) * c) * 2**n``, of
    ``exp`` too, where ``y`` and ``c`` stay along an axis along which ``x`` moves. Out:
    ``exp2(x * c - (y * c - n))``, one instruction for each element beside the power, as the bracket is a
    number of the row. The exponent is off by its rounding, the same for all elements of the row."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with its exponents fused."""
        if kernel.option(FAST_MATH) is None:
            return kernel
        return rewrite_launches(kernel, _fused_in)


def _fused_in(launch: Launch) -> Launch:
    return replace(launch, body=rewrite_blocks(launch.body, _block))


def _block(block: Block) -> list[Stmt]:
    return [_in_loop(stmt) if isinstance(stmt, Parallel) else stmt for stmt in block]


def _in_loop(loop: Parallel) -> Stmt:
    return map_stmt(loop, lambda expr: _fused(expr, loop))


def _fused(expr: Expr, loop: Parallel) -> Expr:
    """``expr`` with the powers in it that can be fused."""

    def visit(node: Expr) -> Expr | None:
        factor = _power_of_two(node)
        power = node if factor is None else node.a
        exponent = _exponent(power, loop)
        if exponent is None or (factor is None and same(power.args[0], exponent[0] - exponent[1])):
            return None
        moving, fixed = (transform(part, visit) for part in exponent)
        return tirx.exp2(moving - (fixed if factor is None else fixed - tirx.const(factor, "float32")))

    return transform(expr, visit)


def _power_of_two(node: Expr) -> float | None:
    """n of ``value * 2**n``; None for all else."""
    number = getattr(node.b, "value", None) if isinstance(node, tirx.Mul) else None
    if not isinstance(number, float) or number <= 0:
        return None
    mantissa, exponent = math.frexp(number)
    return float(exponent - 1) if mantissa == 0.5 and abs(exponent) <= _MOST else None


def _exponent(node: Expr, loop: Parallel) -> tuple[Expr, Expr] | None:
    """The exponent of a power as (what moves, what stays along an axis of the loop), the one less the other;
    None for what is no such power."""
    base = _TO_BASE_2.get(call_name(node) or "")
    if base is None or dtype_of(node) != "float32":
        return None
    parts = _difference(node.args[0])
    if parts is None:
        return None
    x, y, scale = parts
    if base != 1.0:
        factor = tirx.const(base, "float32")
        scale = factor if scale is None else scale * factor
    stays = (y,) if scale is None else (y, scale)
    axes = [var for var in loop.vars if uses(x, (var,)) and not any(uses(each, (var,)) for each in stays)]
    if not axes:
        return None
    return (x, y) if scale is None else (x * scale, y * scale)


def _difference(expr: Expr) -> tuple[Expr, Expr, Expr | None] | None:
    """x, y and c of ``(x - y) * c``, where c may be missing."""
    if isinstance(expr, tirx.Sub):
        return expr.a, expr.b, None
    if not isinstance(expr, tirx.Mul):
        return None
    for side, scale in ((expr.a, expr.b), (expr.b, expr.a)):
        if isinstance(side, tirx.Sub):
            return side.a, side.b, scale
    return None
