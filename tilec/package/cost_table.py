"""Costs of schedules in C: which variants a call chooses among, and functions that say what each costs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from tilec.costs import SHARE, cost_tree
from tilec.package.choices import calls, choices
from tilec.package.model import KernelRecord
from tilec.sizes import NEGATE, Apply, Literal, Name, Node, Visitor

#: Divisors of dims that integers divide by are at most two to this: less than what `ceil` leaves out.
_MOST_SHIFT = 16


def runs_of(kernel: KernelRecord) -> list[range]:
    """Runs of several variants in dispatch order of which the least cost decides."""
    found = choices([calls(each.target, each.guards, each.align, each.cost) for each in kernel.variants])
    return [run for run in dict.fromkeys(found) if len(run) > 1]


class _CostText(Visitor[str]):
    """Writes a cost in C, over ``dims`` and ``share``."""

    forms: ClassVar[Mapping[str, str]] = {
        **{symbol: f"({{}} {symbol} {{}})" for symbol in "+-*"},
        NEGATE: "(-{})",
        "min": "cost_min({}, {})",
        "max": "cost_max({}, {})",
        "ceil": "cost_ceil({})",
    }

    def __init__(self, dims: Sequence[str]) -> None:
        self.dims = {name: f"dims[{index}]" for index, name in enumerate(dims)}
        self.names = {name: f"(double){text}" for name, text in self.dims.items()} | {SHARE: "share"}

    def literal(self, value: float) -> str:
        return repr(float(value))

    def name(self, name: str) -> str:
        return self.names[name]

    def apply(self, op: str, parts: Sequence[Node]) -> str:
        whole = self._whole(parts[0]) if op == "ceil" else ""
        return whole or self.forms[op].format(*map(self.visit, parts))

    def is_whole(self, node: Node) -> bool:
        """Whether integers round a node up, faster than vectors do."""
        return isinstance(node, Apply) and node.op == "ceil" and bool(self._whole(node.parts[0]))

    def _whole(self, part: Node) -> str:
        """A dim over a power of two, rounded up by integers; empty for anything else."""
        pair = part.parts if isinstance(part, Apply) and part.op == "*" else ()
        named = {type(each): each for each in pair}
        dim, factor = named.get(Name), named.get(Literal)
        if not isinstance(dim, Name) or not isinstance(factor, Literal) or dim.name not in self.dims:
            return ""
        shift = _shift(factor.value)
        return "" if shift is None else f"cost_parts({self.dims[dim.name]}, {shift})"


def _shift(factor: float) -> int | None:
    """How far a factor of one over a power of two shifts a dim; None for any other factor."""
    mantissa, exponent = math.frexp(factor)
    return 1 - exponent if mantissa == 0.5 and -_MOST_SHIFT < exponent < 1 else None


#: What vectors do, over two parts or one.
_PAIRS = {**{symbol: f"({{}} {symbol} {{}})" for symbol in "+-*"}, "ceil": "cost_ceil_two({})"}


class _PairText:
    """Writes costs two at a time, in vectors of two where both do the same: a processor has half of the work,
    and each is to the last bit what it is alone."""

    def __init__(self, dims: Sequence[str]) -> None:
        self._one = _CostText(dims)

    def line(self, trees: Sequence[Node], numbers: Sequence[int]) -> str:
        """The statement that puts one or two costs out."""
        first, *others = numbers
        if not others:
            return f"  out[{first}] = {self._one.visit(trees[first])};\n"
        both = self._both(trees[first], trees[others[0]])
        return f"  COST_PAIR(out[{first}], out[{others[0]}], {both});\n"

    def _both(self, one: Node, other: Node) -> str:
        if one == other:
            return f"cost_both({self._one.visit(one)})"
        parts = _alike(one, other)
        if not parts or self._one.is_whole(one) or self._one.is_whole(other):
            return f"cost_two({self._one.visit(one)}, {self._one.visit(other)})"
        assert isinstance(one, Apply)
        return _PAIRS[one.op].format(*(self._both(*pair) for pair in parts))


def _alike(one: Node, other: Node) -> list[tuple[Node, Node]]:
    """The parts of two operations that a vector does at once; none where it does not."""
    if not isinstance(one, Apply) or not isinstance(other, Apply):
        return []
    return list(zip(one.parts, other.parts, strict=True)) if one.op == other.op and one.op in _PAIRS else []


def _common(one: Node, other: Node) -> int:
    """How many operations of two costs a vector does at once."""
    parts = _alike(one, other)
    return bool(parts) + sum(_common(*pair) for pair in parts)


def _paired(trees: Sequence[Node]) -> Iterator[tuple[int, ...]]:
    """The numbers of all costs, each with that of the ones left with which it has most in common."""
    left = list(range(len(trees)))
    while len(left) > 1:
        first = left.pop(0)
        mate = max(left, key=lambda other: _common(trees[first], trees[other]))
        left.remove(mate)
        yield first, mate
    yield from ((number,) for number in left)


def costs_source(kernel: KernelRecord, prefix: str) -> str:
    """``<prefix>_costs_<variant>`` for each run of choices, named by its first variant."""
    return "".join(_function(kernel, prefix, run) for run in runs_of(kernel))


def _function(kernel: KernelRecord, prefix: str, run: range) -> str:
    trees = [cost_tree(kernel.variants[index].cost) for index in run]
    writer = _PairText([dim.name for dim in kernel.dims])
    lines = "".join(writer.line(trees, numbers) for numbers in _paired(trees))
    head = f"static void {prefix}_costs_{run.start}(const int64_t* dims, double share, double* out) {{\n"
    return f"{head}  (void)dims;\n  (void)share;\n{lines}}}\n"


def cost_fields(kernel: KernelRecord, prefix: str) -> list[dict[str, object]]:
    """Per variant, the fields of its record about choices."""
    rows: list[dict[str, object]] = [{} for _ in kernel.variants]
    for run in runs_of(kernel):
        for number, index in enumerate(run):
            rows[index] = {"costs": f"{prefix}_costs_{run.start}", "choice": number, "num_choices": len(run)}
    return rows
