"""Device TIR of `Print` and `Check`: printf, which device code has without a header, and a trap."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.tirx.script import builder as T

from tilec.backends.cuda.emit.context import DeviceContext
from tilec.backends.cuda.emit.statements import call, emit, guarded
from tilec.ir.nodes import Check, Print
from tilec.lowering.emission.lines import pieces
from tilec.lowering.emission.statements import sequence
from tilec.lowering.exprs import dtype_of

if TYPE_CHECKING:
    from tvm.ir import Expr

#: dtype -> its format and its C type.
_FORMATS = {
    "int64": ("%lld", "long long"),
    "uint64": ("%llu", "unsigned long long"),
    "float64": ("%g", "double"),
}
_PRINT = """
__device__ __noinline__ void {name}({params}) {{
  printf("{text}\\n", {args});
}}
"""
_CHECK = """
__device__ __noinline__ void {name}() {{
  printf("{text}\\n");
  __trap();
}}
"""
_THREAD = ("(int)threadIdx.x", "(int)threadIdx.y", "(int)threadIdx.z")


@emit.register(Print)
def _emit_print(stmt: Print, ctx: DeviceContext) -> tirx.Stmt | None:
    parts = list(pieces(stmt, ctx))
    values = [part for part in parts if not isinstance(part, str)]
    text = "".join(_escaped(one) if isinstance(one, str) else _FORMATS[dtype_of(one)][0] for one in parts)
    kinds = [_FORMATS[dtype_of(value)][1] for value in values]
    names = [f"v{position}" for position in range(len(values))]
    params = ", ".join(f"{kind} {name}" for kind, name in zip(kinds, names, strict=True))
    args = ", ".join((*_THREAD, *names))
    made = _function("print", _PRINT, values, text=f"thread (%d, %d, %d) {text}", params=params, args=args)
    return guarded(made, _own(ctx))


@emit.register(Check)
def _emit_check(stmt: Check, ctx: DeviceContext) -> tirx.Stmt | None:
    fails = _function("check", _CHECK, [], text=_escaped(stmt.text))
    return sequence([tirx.IfThenElse(tirx.Not(ctx.value(stmt.cond)), fails, None)])


def _own(ctx: DeviceContext) -> list[Expr]:
    """In a loop, whether the iteration is this thread's to print; outside of loops every thread prints."""
    once = ctx.once
    if once is None or (isinstance(once, tirx.EQ) and once.a.same_as(ctx.thread)):
        return []
    return [once]


def _function(kind: str, template: str, values: list[Expr], **parts: str) -> tirx.Stmt:
    """A call of a function of its own, which keeps registers of the code around it free."""
    digest = hashlib.sha256(repr(parts).encode()).hexdigest()[:12]
    name = f"tilec_{kind}_{digest}"
    source = template.format(name=name, **parts)
    return call(T.cuda.func_call(name, *values, source_code=source, return_type="void"))


def _escaped(text: str) -> str:
    """As a format in a C string."""
    special = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "%": "%%"}
    return "".join(special.get(letter, letter if letter.isprintable() else "?") for letter in text)
