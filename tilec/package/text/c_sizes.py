"""Integer texts (Python syntax) to C expressions that notice overflow; the functions are in
runtime_c/src/arith.h."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from tilec.errors import PackageError
from tilec.sizes import NEGATE, Node, SizeError, Visitor, parse_size

_INT64_MAX = 2**63 - 1


def to_c(text: str, names: Mapping[str, str]) -> str:
    """``text`` as a C expression of type int64_t. ``names`` maps each name to a C expression; a variable
    ``bool ok`` is in scope and turns false on overflow or division by zero. Raises PackageError for syntax
    outside + - * // %, comparisons, and/or/not, min, max, select, and for unknown names."""
    return CText(text, names).visit(parse(text))


def parse(text: str) -> Node:
    """The tree of an integer text; PackageError if it is no size."""
    try:
        return parse_size(text)
    except SizeError as error:
        raise _unsupported(text, str(error)) from error


def _unsupported(text: str, why: str) -> PackageError:
    return PackageError(
        f"the size {text!r} cannot be computed at run time",
        why=why,
        remedy="use + - * // %, comparisons, min, max and select over dims and scalar parameters",
    )


class CText(Visitor[str]):
    """Writes C of one tree that `parse` gave; keeps the text for messages. Another language overrides what
    differs: ``forms`` says how each operation is written."""

    integer = "INT64_C({})"
    forms: ClassVar[Mapping[str, str]] = {
        "+": "int_add(&ok, {}, {})",
        "-": "int_sub(&ok, {}, {})",
        "*": "int_mul(&ok, {}, {})",
        "//": "int_floordiv(&ok, {}, {})",
        "%": "int_floormod(&ok, {}, {})",
        NEGATE: "int_sub(&ok, 0, {})",
        **{symbol: f"({{}} {symbol} {{}})" for symbol in ("<", "<=", ">", ">=", "==", "!=")},
        "not": "(!{})",
        "min": "int_min({}, {})",
        "max": "int_max({}, {})",
        "select": "({} ? {} : {})",
    }

    def __init__(self, text: str, names: Mapping[str, str]) -> None:
        self.text = text
        self.names = names

    def literal(self, value: int) -> str:
        """A number; PackageError for one of more than 64 bits."""
        if value > _INT64_MAX:
            raise _unsupported(self.text, f"{value} has more than 64 bits")
        return self.integer.format(int(value))

    def name(self, name: str) -> str:
        """What stands for a name; PackageError for an unknown one."""
        if name not in self.names:
            known = ", ".join(self.names) or "none"
            raise PackageError(
                f"the size {self.text!r} uses the unknown name {name!r}", why=f"known: {known}"
            )
        return self.names[name]

    def apply(self, op: str, parts: Sequence[Node]) -> str:
        """An operation."""
        texts = [self.visit(part) for part in parts]
        return self.joined(op, texts) if op in ("and", "or") else self.forms[op].format(*texts)

    def joined(self, op: str, texts: Sequence[str]) -> str:
        """Conditions with ``and`` or ``or`` between them."""
        return f"({(' && ' if op == 'and' else ' || ').join(texts)})"
