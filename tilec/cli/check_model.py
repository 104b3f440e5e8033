"""`tilec check --model`: who serves the layers of a transformer."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tilec.cli.printing.output import print_json, print_table, write_file
from tilec.cli.printing.texts import excused, misses_text, restrictions_text, server_text
from tilec.portable.dims import dims_text

if TYPE_CHECKING:
    from tilec.build.answers.coverage import Answer
    from tilec.manifest import Plan
    from tilec.manifest.transformers.model_calls import ModelCalls

_MOST_TOKENS = 1 << 20


class Tokens(click.ParamType):  # type: ignore[type-arg]
    """``1..8192``, ``16`` or several with commas, as ascending numbers."""

    name = "1..8192,16384"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Every number once."""
        found: set[int] = set()
        for part in str(value).split(","):
            first, dots, last = part.strip().partition("..")
            if not first.isdecimal() or (dots and not last.isdecimal()):
                self.fail(f"{value!r} is not of the form {self.name}", param, ctx)
            low, high = int(first), int(last or first)
            if not 1 <= low <= high <= _MOST_TOKENS:
                self.fail(f"{part!r}: tokens are 1 to {_MOST_TOKENS}, the lower number first", param, ctx)
            found.update(range(low, high + 1))
        return tuple(sorted(found))


def check_model(
    plan: Plan,
    config_path: Path,
    tokens: Sequence[int],
    *,
    context: int | None,
    dtype: str | None,
    out: Path | None,
    strict: bool,
    as_json: bool,
) -> int:
    """Prints the answers and returns the exit code; ``out`` is where a shapes file goes."""
    from dataclasses import replace

    from tilec.build.answers.coverage import answers, sample_calls
    from tilec.manifest.transformers.model_calls import model_calls
    from tilec.manifest.transformers.model_config import read_model_config

    config = read_model_config(config_path)
    if dtype is not None:
        config = replace(config, dtype=dtype)
    longest = context or config.sizes["max_position_embeddings"]
    model = model_calls(plan, config, tokens, longest)
    found = list(answers(model))
    if out is not None:
        write_file(out, json.dumps({"calls": sample_calls(model)}, indent=1) + "\n")
    if as_json:
        print_json(_json(plan, model, found))
    else:
        _print(plan, found)
    return _judge(plan, model, found, strict)


def _print(plan: Plan, found: Sequence[Answer]) -> None:
    """One row for each kernel, size and answer: the layers and targets that share it, together."""
    from tilec.build.answers.coverage import runs_text

    rows: dict[tuple[str, ...], tuple[dict[str, int], dict[str, None]]] = {}
    for each in found:
        dims = dims_text(each.call.texts)
        service = each.service
        served = server_text(each.target, service, restrictions_text)
        key = (each.call.kernel.name, dims, runs_text(each.tokens), service.kind, served)
        layers, targets = rows.setdefault(key, ({}, {}))
        layers[each.call.layer], targets[each.target] = each.call.count, None
    print_table(
        ["layers", "kernel", "dims", "count", "tokens", "answer", "served by", "on"],
        [
            [
                ", ".join(layers),
                *key[:2],
                sum(layers.values()),
                *key[2:],
                _targets_text(plan, key[0], targets),
            ]
            for key, (layers, targets) in rows.items()
        ],
    )


def _targets_text(plan: Plan, name: str, targets: Iterable[str]) -> str:
    """The targets, in a word where they are all of the kernel's."""
    kernel = next(kernel for kernel in plan.kernels if kernel.name == name)
    every = dict.fromkeys(variant.target.name for variant in kernel.variants)
    return "every target" if len(every) > 1 and set(every) == set(targets) else " ".join(targets)


def _json(plan: Plan, model: ModelCalls, found: Sequence[Answer]) -> dict[str, object]:
    from tilec.build.answers.coverage import unserved_layers

    return {
        "model": model.config.kind,
        "dtype": model.config.dtype,
        "answers": [_answer_json(each) for each in found],
        "without_code": {target: list(layers) for target, layers in unserved_layers(plan, model).items()},
    }


def _answer_json(each: Answer) -> dict[str, object]:
    variant = each.service.variant
    return {
        "layer": each.call.layer,
        "kernel": each.call.kernel.name,
        "dims": dict(each.call.texts),
        "count": each.call.count,
        "target": each.target,
        "tokens": [[run.first, run.last, run.step] for run in each.tokens],
        "answer": each.service.kind,
        "code": variant.target.name if variant else None,
        "guards": {name: str(guard) for name, guard in variant.dims.items()} if variant else None,
    }


def _judge(plan: Plan, model: ModelCalls, found: Sequence[Answer], strict: bool) -> int:
    """Says on stderr what nobody serves; 1 for a miss that is not excused, or, if strict, for a layer that no
    kernel is for."""
    from tilec.build.answers.coverage import runs_text, unserved_layers

    allowed, misses = excused(plan, strict), [each for each in found if each.service.kind == "miss"]
    missed = [each for each in misses if each.call.kernel.name not in allowed]
    for each in missed:
        text = f"{each.call.layer}: {each.call.kernel.name} on {each.target} serves no tokens"
        click.echo(f"{text} {runs_text(each.tokens)}", err=True)
    without = {target: layers for target, layers in unserved_layers(plan, model).items() if layers}
    for target, layers in without.items():
        click.echo(f"no kernel that runs on {target} is for {', '.join(layers)}", err=True)
    what = f"{model.config.kind} model of {model.config.dtype}"
    text = misses_text(len(misses), len(misses) - len(missed), len(found))
    click.echo(f"{what}: {text}", err=True)
    return 1 if missed or (strict and without) else 0
