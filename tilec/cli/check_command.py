"""`tilec check`: is the manifest right, and who serves which call."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tilec.cli.output import counted, print_json, print_table, print_warning

if TYPE_CHECKING:
    from tilec.manifest import KernelPlan, Plan, Variant
    from tilec.manifest.shapes import Call

_NONE = "none"


@click.command("check")
@click.argument("manifest", type=click.Path(path_type=Path))
@click.option("--shapes", type=click.Path(path_type=Path), help="Calls as JSON: who serves each?")
@click.option(
    "-j", "--jobs", type=click.IntRange(min=1), help="Processes. [default: TILEC_JOBS, else one per core]"
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(manifest: Path, shapes: Path | None, jobs: int | None, as_json: bool) -> int:
    """Expand and validate MANIFEST without compiling.

    Kernels are elaborated and verified too. With --shapes, a call that no variant serves makes the exit code
    1, unless the kernel says fallback = "none". The file: {"calls": [{"kernel": "name", "dims": {"M": 17}}]}.
    """
    from tilec.build.frontend import check_sources
    from tilec.build.pool import default_jobs
    from tilec.manifest import load_manifest

    plan = load_manifest(manifest)
    check_sources(plan, jobs or default_jobs())
    for warning in plan.warnings:
        print_warning(warning)
    if shapes is not None:
        return _check_shapes(plan, shapes, as_json)
    _print_plan(plan, as_json)
    return 0


def _print_plan(plan: Plan, as_json: bool) -> None:
    if as_json:
        print_json({"name": plan.name, "kernels": [_kernel_json(kernel) for kernel in plan.kernels]})
        return
    rows = [
        [variant.kernel, variant.target.name, guards_text(variant), _config_text(variant)]
        for variant in plan.variants
    ]
    print_table(["kernel", "target", "guards", "config"], rows)
    sizes = f"{counted(len(plan.kernels), 'kernel')}, {counted(len(plan.variants), 'variant')}"
    click.echo(f"{plan.path}: {sizes}, no errors")


def guards_text(variant: Variant) -> str:
    """`M=1..64 N=4096`."""
    return " ".join(f"{name}={guard}" for name, guard in variant.dims.items()) or "-"


def _config_text(variant: Variant) -> str:
    text = " ".join(f"{key}={json.dumps(value, default=str)}" for key, value in variant.config.items())
    return f"{text} ({variant.config_source})" if text else "-"


def _kernel_json(kernel: KernelPlan) -> dict[str, object]:
    return {
        "name": kernel.name,
        "source": kernel.entry.source,
        "variants": [
            {
                "target": variant.target.name,
                "guards": {name: str(guard) for name, guard in variant.dims.items()},
                "config": dict(variant.config),
                "config_source": variant.config_source,
            }
            for variant in kernel.variants
        ],
    }


def _check_shapes(plan: Plan, shapes: Path, as_json: bool) -> int:
    from tilec.manifest.shapes import read_shapes

    answers = [(call, *answer) for call in read_shapes(shapes, plan) for answer in _answers(plan, call)]
    if as_json:
        print_json([_answer_json(call, target, variant) for call, target, variant in answers])
    else:
        rows = [
            [call.kernel, _dims_text(call), call.count, target, guards_text(variant) if variant else _NONE]
            for call, target, variant in answers
        ]
        print_table(["kernel", "dims", "count", "target", "served by"], rows)
    meant = {kernel.name for kernel in plan.kernels if kernel.entry.fallback == "none"}
    unserved = [call for call, _, variant in answers if variant is None and call.kernel not in meant]
    if unserved:
        verb = "is" if len(unserved) == 1 else "are"
        text = f"{len(unserved)} of {counted(len(answers), 'call')} {verb} served by no variant"
        click.echo(text, err=True)
    return 1 if unserved else 0


def _answers(plan: Plan, call: Call) -> Iterator[tuple[str, Variant | None]]:
    """Per target of the kernel: the variant of that target that takes the call."""
    from tilec.build.dispatch import serving_variant

    kernel = next(kernel for kernel in plan.kernels if kernel.name == call.kernel)
    for target in dict.fromkeys(variant.target.name for variant in kernel.variants):
        if call.target in (None, target):
            yield target, serving_variant(kernel, target, call.dims)


def _dims_text(call: Call) -> str:
    return " ".join(f"{name}={value}" for name, value in call.dims.items()) or "-"


def _answer_json(call: Call, target: str, variant: Variant | None) -> dict[str, object]:
    guards = {name: str(guard) for name, guard in variant.dims.items()} if variant else None
    return {
        "kernel": call.kernel,
        "dims": dict(call.dims),
        "count": call.count,
        "target": target,
        "guards": guards,
    }
