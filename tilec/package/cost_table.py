"""Costs of schedules in C: which variants a call chooses among, and functions that say what each costs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

from tilec.costs import SHARE, cost_tree
from tilec.package.choices import calls, choices
from tilec.package.model import KernelRecord
from tilec.sizes import NEGATE, Apply, Literal, Name, Node, Visitor

#: Divisors of dims are less than two to this.
_MOST_SHIFT = 32


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


def costs_source(kernel: KernelRecord, prefix: str) -> str:
    """``<prefix>_costs_<variant>`` for each run of choices, named by its first variant."""
    return "".join(_function(kernel, prefix, run) for run in runs_of(kernel))


def _function(kernel: KernelRecord, prefix: str, run: range) -> str:
    writer = _CostText([dim.name for dim in kernel.dims])
    lines = "".join(
        f"  out[{number}] = {writer.visit(cost_tree(kernel.variants[index].cost))};\n"
        for number, index in enumerate(run)
    )
    head = f"static void {prefix}_costs_{run.start}(const int64_t* dims, double share, double* out) {{\n"
    return f"{head}  (void)dims;\n  (void)share;\n{lines}}}\n"


def cost_fields(kernel: KernelRecord, prefix: str) -> list[dict[str, object]]:
    """Per variant, the fields of its record about choices."""
    rows: list[dict[str, object]] = [{} for _ in kernel.variants]
    for run in runs_of(kernel):
        for number, index in enumerate(run):
            rows[index] = {"costs": f"{prefix}_costs_{run.start}", "choice": number, "num_choices": len(run)}
    return rows
