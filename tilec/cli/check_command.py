"""`tilec check`: is the manifest right, and who serves which call."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tilec.cli.output import counted, print_json, print_table, print_warning

if TYPE_CHECKING:
    from tilec.build.dispatch import Service
    from tilec.manifest import KernelPlan, Plan, Variant
    from tilec.manifest.shapes import Call


@click.command("check")
@click.argument("manifest", type=click.Path(path_type=Path))
@click.option("--shapes", type=click.Path(path_type=Path), help="Calls as JSON: who serves each?")
@click.option("--strict", is_flag=True, help="With --shapes: exit 1 on every miss.")
@click.option(
    "-j", "--jobs", type=click.IntRange(min=1), help="Processes. [default: TILEC_JOBS, else one per core]"
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(manifest: Path, shapes: Path | None, strict: bool, jobs: int | None, as_json: bool) -> int:
    """Expand and validate MANIFEST without compiling.

    Kernels are elaborated and verified too. With --shapes, each call is answered for a machine of each target
    of its kernel: hit; fallback, which is the general variant or code of a lesser target; or miss. A miss
    makes the exit code 1; without --strict, not where the kernel says fallback = "none". The file:
    {"calls": [{"kernel": "name", "dims": {"M": 17}}]}.
    """
    from tilec.build.frontend import check_sources
    from tilec.build.pool import default_jobs
    from tilec.manifest import load_manifest

    if strict and shapes is None:
        raise click.UsageError("--strict says how to judge calls; give them with --shapes")
    plan = load_manifest(manifest)
    check_sources(plan, jobs or default_jobs())
    for warning in plan.warnings:
        print_warning(warning)
    if shapes is not None:
        return _check_shapes(plan, shapes, strict, as_json)
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


def _check_shapes(plan: Plan, shapes: Path, strict: bool, as_json: bool) -> int:
    from tilec.manifest.shapes import read_shapes

    answers = [(call, *answer) for call in read_shapes(shapes, plan) for answer in _answers(plan, call)]
    if as_json:
        print_json([_answer_json(call, target, found) for call, target, found in answers])
    else:
        rows = [
            [call.kernel, _dims_text(call), call.count, target, found.kind, _server_text(target, found)]
            for call, target, found in answers
        ]
        print_table(["kernel", "dims", "count", "target", "answer", "served by"], rows)
    excused = {kernel.name for kernel in plan.kernels if kernel.entry.fallback == "none" and not strict}
    unserved = [call for call, _, found in answers if found.kind == "miss" and call.kernel not in excused]
    if unserved:
        verb = "is" if len(unserved) == 1 else "are"
        text = f"{len(unserved)} of {counted(len(answers), 'call')} {verb} served by no variant"
        click.echo(text, err=True)
    return 1 if unserved else 0


def _answers(plan: Plan, call: Call) -> Iterator[tuple[str, Service]]:
    """Per target of the kernel: how a machine of that target serves the call."""
    from tilec.build.dispatch import service

    kernel = next(kernel for kernel in plan.kernels if kernel.name == call.kernel)
    for target in dict.fromkeys(variant.target.name for variant in kernel.variants):
        if call.target in (None, target):
            yield target, service(kernel, target, call.dims)


def _server_text(target: str, found: Service) -> str:
    """The guards of the variant, and its target where that is another one."""
    if found.variant is None:
        return "-"
    code = found.variant.target.name
    return guards_text(found.variant) + ("" if code == target else f" of {code}")


def _dims_text(call: Call) -> str:
    return " ".join(f"{name}={value}" for name, value in call.dims.items()) or "-"


def _answer_json(call: Call, target: str, found: Service) -> dict[str, object]:
    variant = found.variant
    return {
        "kernel": call.kernel,
        "dims": dict(call.dims),
        "count": call.count,
        "target": target,
        "answer": found.kind,
        "code": variant.target.name if variant else None,
        "guards": {name: str(guard) for name, guard in variant.dims.items()} if variant else None,
    }
