"""Loops of a known number of trips that LLVM is to leave loops.

LLVM writes out a loop over a row of up to some thousand elements, and then keeps what several loops read of
the row: in registers, of which there are too few, so that most of it goes through the stack, and its cache
lines are read out of order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

if TYPE_CHECKING:
    from tvm.ir import Expr

_TYPES = {"int32": "i32", "int64": "i64"}


def unknown(trips: int, dtype: str, functions: dict[str, str]) -> Expr:
    """``trips``, as a number that LLVM does not know. The function that hides it goes into ``functions``: its
    text by its name."""
    name = f"tilec_unknown_{dtype}"
    functions[name] = _text(name, _TYPES[dtype])
    return tirx.call_pure_extern(dtype, name, tirx.const(trips, dtype))


def _text(name: str, kind: str) -> str:
    return f"""define linkonce_odr hidden {kind} @{name}({kind} %given) alwaysinline nounwind {{
  %unknown = call {kind} asm "", "=r,0"({kind} %given)
  ret {kind} %unknown
}}"""
