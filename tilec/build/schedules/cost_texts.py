"""Sizes as costs: what rounds down or up in tile IR becomes ``ceil`` of a quotient."""

from __future__ import annotations

from collections.abc import Mapping

from tilec.errors import UnsupportedError
from tilec.sizes import (
    ARITHMETIC,
    SIZES,
    Apply,
    Grammar,
    Literal,
    Name,
    Node,
    Operation,
    evaluate,
    parse_size,
    text_of,
    value_of,
)

#: Where ``ceil`` leaves a quotient as it is.
_UNROUNDED = Grammar(
    article="a",
    what="count",
    offered="",
    longest=1000,
    constants=(int,),
    operations={
        **{symbol: ARITHMETIC[symbol] for symbol in ("+", "-", "*")},
        "/": Operation(lambda left, right: left / right),
        "min": Operation(min),
        "max": Operation(max),
        "ceil": Operation(float, 1, 1),
    },
)


def cost_text(size: str, middles: Mapping[str, Node] | None = None) -> str:
    """A size of sums, products and quotients by numbers as a cost, in brackets where it needs them; some of
    its names are ``middles``. Raises UnsupportedError for others."""
    text = text_of(_cost(_placed(parse_size(size), middles or {})))
    return f"({text})" if " " in text and not text.startswith("ceil(") else text


def _placed(node: Node, middles: Mapping[str, Node]) -> Node:
    if isinstance(node, Name):
        return middles.get(node.name, node)
    if isinstance(node, Apply):
        return Apply(node.op, tuple(_placed(part, middles) for part in node.parts))
    return node


def _cost(node: Node) -> Node:
    if not isinstance(node, Apply):
        return node
    left, *rest = map(_cost, node.parts)
    by = rest[0] if rest else None
    if node.op == "//" and isinstance(by, Literal):
        return _quotient(left, by.value)
    if node.op in "+-" and isinstance(by, Literal):
        return _plus(left, by.value if node.op == "+" else -by.value)
    if node.op in ("+", "-", "*", "min", "max"):
        return Apply(node.op, (left, *rest))
    raise UnsupportedError(f"a cost cannot say {text_of(node)}", remedy="give costs by hand")


def _quotient(value: Node, by: int) -> Node:
    """Rounded down, which is ``(value - (by - 1)) / by`` rounded up."""
    return value if by == 1 else Apply("ceil", (Apply("/", (_plus(value, 1 - by), Literal(by))),))


def _plus(value: Node, number: int) -> Node:
    """A sum; numbers come together."""
    if isinstance(value, Apply) and value.op in "+-" and isinstance(value.parts[1], Literal):
        held = value.parts[1].value
        return _plus(value.parts[0], number + (held if value.op == "+" else -held))
    if number == 0:
        return value
    return Apply("+" if number > 0 else "-", (value, Literal(abs(number))))


def unrounded(size: str, names: Mapping[str, int]) -> float:
    """How many whole tiles a size comes to, the last one with its share: 1.5 for 96 rows in tiles of 64. What
    is no sum or quotient counts as it is."""
    try:
        return float(value_of(_UNROUNDED, _cost(parse_size(size)), names))
    except UnsupportedError:
        return float(evaluate(SIZES, size, names))
