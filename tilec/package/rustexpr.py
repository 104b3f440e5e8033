"""Integer texts (Python syntax) to Rust expressions that notice overflow; the functions are in
templates/rust_sizes.rs.in."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from tilec.package.cexpr import Converter, parse


def to_rust(text: str, names: Mapping[str, str]) -> str:
    """``text`` as a Rust expression of type i64. ``names`` maps each name to a Rust expression of type i64; a
    ``Cell<bool>`` named ``ok`` is in scope and turns false on overflow or division by zero. Raises
    PackageError as `cexpr.to_c` does."""
    return _RustConverter(text, names).convert(parse(text))


class _RustConverter(Converter):
    """Truth is the integer 0 or 1, as in C, so that sizes may add and compare it."""

    def _unaryop(self, node: ast.UnaryOp) -> str:
        if isinstance(node.op, ast.Not):
            return f"i64::from({self.convert(node.operand)} == 0)"
        return super()._unaryop(node)

    def _compare(self, node: ast.Compare) -> str:
        return f"i64::from{super()._compare(node)}"

    def _boolop(self, node: ast.BoolOp) -> str:
        connective = " && " if isinstance(node.op, ast.And) else " || "
        return f"i64::from({connective.join(f'{self.convert(value)} != 0' for value in node.values)})"

    def _literal(self, value: int) -> str:
        return f"{value}_i64"

    def _select(self, condition: str, yes: str, no: str) -> str:
        return f"(if {condition} != 0 {{ {yes} }} else {{ {no} }})"
