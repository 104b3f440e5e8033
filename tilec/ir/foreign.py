"""Calls of foreign functions in expressions.

``call_extern(name, returns, *args, source)``: a function of ``source`` (empty: one that the device compiler
knows), whose C result is ``returns`` ("void": the call's value means nothing). Among the arguments
``call_pure_extern("&", A[i])`` is the address of an element.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from tvm.ir import Call

from tilec.ir.exprs import walk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tvm.ir import Expr, Var

#: The name of the function that gives the address of an element.
ADDRESS = "&"


def is_foreign(expr: Expr) -> bool:
    """Whether an expression is a call of a foreign function."""
    return type(expr) is Call and getattr(expr.op, "name", "") == "tirx.call_extern"


def is_address(expr: Expr) -> bool:
    """Whether an expression is the address of an element."""
    return type(expr) is Call and expr.op.name == "tirx.call_pure_extern" and expr.args[0].value == ADDRESS


def addressed(expr: Expr) -> Iterator[Var]:
    """The buffers of whose elements an expression takes the address."""
    return (node.args[1].source for node in walk(expr) if is_address(node))


def parts(call: Any) -> tuple[str, str, list[Expr], str]:
    """Name, C result, arguments and source of a call."""
    name, returns, *args, source = call.args
    return str(name.value), str(returns.value), list(args), str(source.value)


def once(source: str) -> str:
    """The source, guarded against being there several times: it comes with every function that is called."""
    guard = f"TILEC_IMPORTED_{hashlib.sha256(source.encode()).hexdigest()[:16].upper()}"
    return f"#ifndef {guard}\n#define {guard}\n{source}\n#endif\n"
