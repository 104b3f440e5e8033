"""Quotients of a ring's trips have names: what is known in front of a wait holds up no load behind it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tilec.ir.exprs import transform, uses
from tilec.lowering.quotients import Quotients
from tilec.lowering.rewrite import map_block

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.backends.cuda.matmul.nodes import RingFill


def with_named_quotients(fill: RingFill) -> RingFill:
    """A fill whose trip, or a multiple of it, is divided once by each number that is known at run time alone
    (the steps along the channels of a tap, or the channels), by names in front of all else."""
    quotients = Quotients(fill.body)

    def visit(node: Expr) -> Expr | None:
        return quotients.named(node, "part_of_trip") if uses(node, (fill.var,)) else None

    body = map_block(fill.body, lambda expr: transform(expr, visit))
    return replace(fill, body=(*quotients.binds, *body))
