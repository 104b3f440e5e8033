"""Calls of PTX instructions by their names, as emission writes them into TIR."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tvm.ir import Call
from tvm.tirx.script import builder as T

if TYPE_CHECKING:
    from tvm.ir import Expr


@lru_cache(maxsize=256)
def instruction(name: str) -> Any:
    """What makes a call of the instruction of this name: TVM's own lookup narrows its table part by part,
    which takes longer than the call."""
    return T.ptx[name]


def with_operands(made: Call, operands: Mapping[int, Expr]) -> Call:
    """An instruction like ``made`` with other operands of the same types, by position. TVM looks at every
    operand of a call by itself: dozens of them for a product, which differ in two from step to step."""
    args = list(made.args)
    for place, operand in operands.items():
        args[place] = operand
    return Call(made.op, args, ret_ty=made.ty)
