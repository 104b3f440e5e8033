"""Arithmetic that wraps around. TVM's LLVM code generator marks sums, differences and products of 32
and 64 bits as free of overflow, from which LLVM concludes that ``0 - x`` is 0: such an operation is a call of
a function of LLVM text that says nothing of the kind, and is inlined."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from tilec.ir.exprs import dtype_of, scalar_dtype
from tilec.lowering.math.vectors import lanes_of

if TYPE_CHECKING:
    from tvm.ir import Expr

_OPERATIONS = {tirx.Add: "add", tirx.Sub: "sub", tirx.Mul: "mul"}
_TYPES = {"int32": "i32", "int64": "i64", "uint32": "i32", "uint64": "i64"}
#: The types of which LLVM is told that operations do not overflow.
WRAPPING = frozenset(_TYPES)


def leaves_type(kind: type, dtype: str) -> bool:
    """Whether an unsigned operation needs `wrapping`; those on fewer bits come without assumptions."""
    return kind in _OPERATIONS and dtype in ("uint32", "uint64")


def wrapping(kind: type, left: Expr, right: Expr, functions: dict[str, str]) -> Expr:
    """``left`` and ``right`` (of as many lanes) combined modulo 2^32 or 2^64. The function that does it goes
    into ``functions``: its text by its name."""
    word, dtype = _OPERATIONS[kind], dtype_of(left)
    name = f"tilec_wrapping_{word}_{dtype}"
    functions[name] = _text(name, word, _TYPES[scalar_dtype(left)], lanes_of(left))
    return tirx.call_pure_extern(dtype, name, left, right)


def _text(name: str, word: str, element: str, lanes: int) -> str:
    kind = element if lanes == 1 else f"<{lanes} x {element}>"
    return f"""define linkonce_odr hidden {kind} @{name}({kind} %a, {kind} %b)
    alwaysinline nounwind memory(none) {{
  %made = {word} {kind} %a, %b
  ret {kind} %made
}}"""
