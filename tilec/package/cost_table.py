"""Costs of schedules in C: which variants a call chooses among, and functions that say what each costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import ClassVar

from tilec.costs import SHARE, cost_tree
from tilec.package.model import KernelRecord, VariantRecord
from tilec.sizes import NEGATE, Node, Visitor


def choices(kernel: KernelRecord) -> list[range]:
    """Runs of variants in dispatch order that serve the same calls, of which the least cost decides."""
    runs, first = [], 0
    for key, members in groupby(kernel.variants, key=_calls):
        count = len(list(members))
        if key is not None and count > 1:
            runs.append(range(first, first + count))
        first += count
    return runs


def _calls(variant: VariantRecord) -> tuple[object, ...] | None:
    """What makes variants serve the same calls; None for those without a cost."""
    return (variant.target, variant.guards, variant.align) if variant.cost else None


class _CostText(Visitor[str]):
    """Writes a cost in C, over ``dims`` and ``share``."""

    forms: ClassVar[Mapping[str, str]] = {
        **{symbol: f"({{}} {symbol} {{}})" for symbol in "+-*/"},
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
    return "".join(_function(kernel, prefix, run) for run in choices(kernel))


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
    for run in choices(kernel):
        for number, index in enumerate(run):
            rows[index] = {"costs": f"{prefix}_costs_{run.start}", "choice": number, "num_choices": len(run)}
    return rows
