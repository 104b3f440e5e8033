"""Sizes as costs: what rounds down or up in tile IR becomes ``ceil`` of a quotient."""

from __future__ import annotations

from collections.abc import Mapping

from tilec.costs import cost
from tilec.errors import UnsupportedError
from tilec.sizes import SIZES, Apply, Literal, Name, Node, evaluate, parse_size, text_of


def cost_text(size: str, middles: Mapping[str, Node] | None = None, *, rounded: bool = True) -> str:
    """A size of sums, products and quotients by numbers as a cost, in brackets where it needs them; some of
    its names are ``middles``; not ``rounded``: where the last tile counts with its share. Raises
    UnsupportedError for others."""
    tree = _cost(_placed(parse_size(size), middles or {}))
    text = text_of(tree if rounded else _even(tree))
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


def _even(node: Node) -> Node:
    """Without rounding."""
    if not isinstance(node, Apply):
        return node
    parts = tuple(map(_even, node.parts))
    return parts[0] if node.op == "ceil" else Apply(node.op, parts)


def unrounded(size: str, names: Mapping[str, int]) -> float:
    """How many whole tiles a size comes to, the last one with its share: 1.5 for 96 rows in tiles of 64. What
    is no sum or quotient counts as it is."""
    try:
        return cost(cost_text(size, rounded=False), names, 1)
    except UnsupportedError:
        return float(evaluate(SIZES, size, names))
