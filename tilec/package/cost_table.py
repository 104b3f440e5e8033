"""Costs of schedules in C: which variants a call chooses among, and functions that say what each costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from tilec.costs import SHARE, cost_tree
from tilec.package.choices import calls, choices
from tilec.package.model import KernelRecord
from tilec.sizes import NEGATE, Node, Visitor


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
        self.names = {name: f"(double)dims[{index}]" for index, name in enumerate(dims)} | {SHARE: "share"}

    def literal(self, value: float) -> str:
        return repr(float(value))

    def name(self, name: str) -> str:
        return self.names[name]

    def apply(self, op: str, parts: Sequence[Node]) -> str:
        return self.forms[op].format(*map(self.visit, parts))


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
