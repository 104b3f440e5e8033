"""Who serves the calls of a model: for each layer and target, which variant at which numbers of tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tilec.build.answers.dispatch import Server, Service
from tilec.manifest import Plan
from tilec.manifest.transformers.layers import parts
from tilec.manifest.transformers.model_calls import LayerCall, ModelCalls
from tilec.package.dispatch.usable import may_run

_MOST_RUNS = 3  # in a text


@dataclass(frozen=True)
class Run:
    """The numbers from ``first`` to ``last`` in steps of ``step``."""

    first: int
    last: int
    step: int = 1

    def __str__(self) -> str:
        if self.first == self.last:
            return str(self.first)
        return f"{self.first}..{self.last}" + (f" by {self.step}" if self.step != 1 else "")

    def __len__(self) -> int:
        return (self.last - self.first) // self.step + 1


@dataclass(frozen=True, eq=False)
class Answer:
    """At ``tokens`` a machine of ``target`` serves ``call`` by ``service``."""

    call: LayerCall
    target: str
    service: Service
    tokens: tuple[Run, ...]


def answers(model: ModelCalls) -> Iterator[Answer]:
    """In the order of a step; per layer by target, per target in dispatch order."""
    for call in model.calls:
        for target in dict.fromkeys(variant.target.name for variant in call.kernel.variants):
            for service, mask in Server(call.kernel, target).services(call.dims):
                yield Answer(call, target, service, runs(model.tokens[mask].tolist()))


def unserved_layers(plan: Plan, model: ModelCalls) -> dict[str, tuple[str, ...]]:
    """Per target of the plan, the layers of the model for which a machine of that target has no code."""
    targets = dict.fromkeys(variant.target.name for variant in plan.variants)
    found = {}
    for target in targets:
        served = {
            part
            for call in model.calls
            if any(may_run(variant.target.name, target) for variant in call.kernel.variants)
            for part in parts(call.layer)
        }
        found[target] = tuple(layer for layer in model.layers if layer not in served)
    return found


def runs(values: Sequence[int]) -> tuple[Run, ...]:
    """Ascending numbers as evenly spaced runs, from the first on; two numbers apart are no run."""
    found, at = [], 0
    while at < len(values):
        end = at + 1
        step = values[end] - values[at] if end < len(values) else 1
        while end < len(values) and values[end] - values[end - 1] == step:
            end += 1
        if step != 1 and end - at == 2:
            end -= 1
        found.append(Run(values[at], values[end - 1], step if end - at > 1 else 1))
        at = end
    return tuple(found)


def runs_text(found: Sequence[Run]) -> str:
    """The first runs, and how many numbers there are where that is not all."""
    shown = ", ".join(str(run) for run in found[:_MOST_RUNS])
    return shown if len(found) <= _MOST_RUNS else f"{shown}, ... ({sum(map(len, found))} in all)"


def sample_calls(model: ModelCalls) -> list[dict[str, object]]:
    """Calls of a shapes file that stand for a model: every layer at the powers of two among the numbers of
    tokens, at the least and the largest, and at the largest that each variant serves. Layers with the same
    kernel and dims count together."""
    edges = {int(model.tokens[0]), int(model.tokens[-1])}
    chosen = {count for count in model.tokens.tolist() if count & (count - 1) == 0} | edges
    chosen |= {each.tokens[-1].last for each in answers(model)}
    places = np.flatnonzero(np.isin(model.tokens, sorted(chosen)))
    counts: dict[tuple[str, tuple[tuple[str, int], ...]], int] = {}
    for call in model.calls:
        sizes = [tuple((name, int(values[at])) for name, values in call.dims.items()) for at in places]
        for dims in dict.fromkeys(sizes):
            counts[call.kernel.name, dims] = counts.get((call.kernel.name, dims), 0) + call.count
    return [
        {"kernel": kernel, "dims": dict(dims), "count": count} for (kernel, dims), count in counts.items()
    ]
