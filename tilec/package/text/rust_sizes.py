"""Integer texts (Python syntax) to Rust expressions that notice overflow; the functions are in
templates/rust_sizes.rs.in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from tilec.package.text.c_sizes import CText, parse


def to_rust(text: str, names: Mapping[str, str]) -> str:
    """``text`` as a Rust expression of type i64. ``names`` maps each name to a Rust expression of type i64; a
    ``Cell<bool>`` named ``ok`` is in scope and turns false on overflow or division by zero. Raises
    PackageError as `c_sizes.to_c` does."""
    return _RustText(text, names).visit(parse(text))


class _RustText(CText):
    """Truth is the integer 0 or 1, as in C, so that sizes may add and compare it."""

    integer = "{}_i64"
    forms: ClassVar[Mapping[str, str]] = {
        **CText.forms,
        **{symbol: f"i64::from({{}} {symbol} {{}})" for symbol in ("<", "<=", ">", ">=", "==", "!=")},
        "not": "i64::from({} == 0)",
        "select": "(if {} != 0 {{ {} }} else {{ {} }})",
    }

    def joined(self, op: str, texts: Sequence[str]) -> str:
        return f"i64::from{super().joined(op, [f'{text} != 0' for text in texts])}"
