"""Functions in LLVM's own language, for what TIR has no node for."""

from __future__ import annotations

from tvm import ir as tvm_ir
from tvm import tirx


def with_llvm(text: str, body: tirx.Stmt) -> tirx.Stmt:
    """``body`` with the functions of an LLVM text at hand, where there are some."""
    if not text:
        return body
    return tirx.AttrStmt(tirx.const(0, "int32"), "pragma_import_llvm", tvm_ir.StringImm(text), body)
