"""`tilec check`: is the manifest right, and who serves which call."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tilec.cli.check_model import Tokens, check_model
from tilec.cli.idle_overrides import print_idle_overrides
from tilec.cli.printing.output import print_json, print_table, print_warning
from tilec.cli.printing.progress import shown_progress
from tilec.cli.printing.texts import excused, guards_text, misses_text, server_text
from tilec.errors import Remark, StrictError
from tilec.portable.dims import dims_text
from tilec.spelling import counted

if TYPE_CHECKING:
    from tilec.build.answers.dispatch import Server, Service
    from tilec.build.elaborated.checking import Checked
    from tilec.manifest import KernelPlan, Plan, Variant
    from tilec.manifest.shapes import Call


@click.command("check")
@click.argument("manifest", type=click.Path(path_type=Path))
@click.option(
    "--target",
    "targets",
    multiple=True,
    metavar="T",
    help="Check this target only, listed or not; repeatable.",
)
@click.option(
    "--kernel", "kernels", multiple=True, metavar="GLOB", help="Check these kernels only; repeatable."
)
@click.option("--shapes", type=click.Path(path_type=Path), help="Calls as JSON: who serves each?")
@click.option("--model", type=click.Path(path_type=Path), help="A transformer's config.json: who serves it?")
@click.option(
    "--tokens", type=Tokens(), default="1..8192", show_default=True, help="With --model: rows of a step."
)
@click.option(
    "--context",
    type=click.IntRange(min=1),
    help="With --model: the longest sequence. [default: max_position_embeddings]",
)
@click.option("--dtype", help="With --model: its element type. [default: what it says]")
@click.option(
    "--write-shapes",
    "out",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    help="With --model: write a file for --shapes and tune.",
)
@click.option(
    "--strict",
    is_flag=True,
    help="Exit 1 on every warning about a kernel, every miss and layer without a kernel.",
)
@click.option("--all", "every", is_flag=True, help="Elaborate each of thousands of variants, not a sample.")
@click.option(
    "-j", "--jobs", type=click.IntRange(min=1), help="Processes. [default: TILEC_JOBS, else one per core]"
)
@click.option("-v", "--verbose", is_flag=True, help="Name the overrides for none of the manifest's targets.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    manifest: Path,
    targets: tuple[str, ...],
    kernels: tuple[str, ...],
    shapes: Path | None,
    model: Path | None,
    tokens: tuple[int, ...],
    context: int | None,
    dtype: str | None,
    out: Path | None,
    strict: bool,
    every: bool,
    jobs: int | None,
    verbose: bool,
    as_json: bool,
) -> int:
    """Expand and validate MANIFEST without compiling.

    Kernels are elaborated and verified too. With --shapes, each call is answered for a machine of each target
    of its kernel, on whichever host: hit; fallback, which is the general variant or code of a lesser target;
    or miss. A miss makes the exit code 1; without --strict, not where the kernel says fallback = "none". The
    file: {"calls": [{"kernel": "name", "dims": {"M": 17}}]}. With --model, calls are those of a transformer
    (llama, mistral, qwen2, qwen3, bert) by the layers that the manifest gives to kernels, at each number of
    tokens.

    Warnings name kernels that are hardly meant so: they read a tile before anything is written to it, write
    nothing, store all iterations of a loop to one element, or do not get the road that their config asks for.
    --strict makes them errors, as in `tilec build`. Of more than 200 different variants a sample is
    elaborated, with every guard, value of "for" and config in it; --all takes each. What was right and
    has not changed since comes from the cache.
    """
    from tilec.build.elaborated.checking import check_sources
    from tilec.build.elaborated.plans import load_plans
    from tilec.build.processes.pool import default_jobs
    from tilec.manifest import of_all_hosts

    _check_usage(shapes, model, context, dtype, out)
    plans = load_plans(manifest, targets=targets, kernels=kernels, jobs=jobs)
    plan = of_all_hosts(plans)
    with shown_progress(plain=every) as progress:
        checked = check_sources(
            plan,
            jobs or default_jobs(),
            every=every,
            progress=lambda done, total, title: progress(done, total, title, False),
        )
    remarks = checked.remarks
    for warning in plan.warnings:
        print_warning(warning)
    _say(remarks, strict)
    if shapes is not None:
        return _check_shapes(plan, shapes, strict, as_json)
    if model is not None:
        return check_model(
            plan, model, tokens, context=context, dtype=dtype, out=out, strict=strict, as_json=as_json
        )
    _print_plan(plan, plans, checked, as_json)
    if not as_json:
        print_idle_overrides(plan, verbose)
    return 0


def _say(remarks: Sequence[Remark], strict: bool) -> None:
    """Raises StrictError where remarks are errors."""
    if strict and remarks:
        raise StrictError(remarks)
    for remark in remarks:
        print_warning(str(remark))


def _check_usage(
    shapes: Path | None,
    model: Path | None,
    context: int | None,
    dtype: str | None,
    out: Path | None,
) -> None:
    """Options that need, or exclude, others."""
    from tilec.dtypes import DTYPES
    from tilec.spelling import suggestion

    if shapes is not None and model is not None:
        raise click.UsageError("--shapes and --model each say which calls to check; give one of them")
    if model is None and (context, dtype, out) != (None, None, None):
        raise click.UsageError("--context, --dtype and --write-shapes belong to --model")
    if dtype is not None and dtype not in DTYPES:
        raise click.UsageError(f'unknown element type "{dtype}": {suggestion(dtype, DTYPES)}')


def _print_plan(plan: Plan, plans: Sequence[Plan], checked: Checked, as_json: bool) -> None:
    """``plan``: what all hosts have, one plan of ``plans`` for each."""
    if as_json:
        kernels = [_kernel_json(kernel) for kernel in plan.kernels]
        hosts = [_host_json(each) for each in plans]
        said = [*plan.warnings, *map(str, checked.remarks)]
        elaborated = {"elaborated": checked.elaborated, "different": checked.total}
        idle = list(plan.idle_overrides)
        more = {"warnings": said, "idle_overrides": idle, **elaborated}
        print_json({"name": plan.name, "hosts": hosts, "kernels": kernels, **more})
        return
    rows = [
        [variant.kernel, variant.target.name, guards_text(variant), _config_text(variant)]
        for variant in plan.variants
    ]
    print_table(["kernel", "target", "guards", "config"], rows)
    if len(plans) > 1:
        click.echo()
        heads = ["host", "kernel", "variants", "left out by its targets"]
        print_table(heads, [row for each in plans for row in _host_rows(each)])
    sizes = f"{counted(len(plan.kernels), 'kernel')}, {counted(len(plan.variants), 'variant')}"
    if len(plans) > 1:
        sizes += f", {counted(len(plans), 'host')}"
    if checked.elaborated < checked.total:
        sizes += f" ({checked.elaborated} of {checked.total} different ones elaborated; --all takes each)"
    click.echo(f"{plan.path}: {sizes}, no errors")


def _host_rows(plan: Plan) -> Iterator[list[str]]:
    """What the library of one host has of each kernel, `3 x86-64-v3, 7 sm_90a`, and the targets that other
    kernels have."""
    every = dict.fromkeys(variant.target.name for variant in plan.variants)
    for kernel in plan.kernels:
        counts = Counter(variant.target.name for variant in kernel.variants)
        held = ", ".join(f"{many} {name}" for name, many in counts.items())
        yield [plan.host.triple, kernel.name, held, ", ".join(name for name in every if name not in counts)]


def _host_json(plan: Plan) -> dict[str, object]:
    targets = {
        kernel.name: list(dict.fromkeys(variant.target.name for variant in kernel.variants))
        for kernel in plan.kernels
    }
    return {"host": plan.host.triple, "targets": targets}


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

    servers = _Servers(plan)
    answers = [(call, *answer) for call in read_shapes(shapes, plan) for answer in servers.answers(call)]
    if as_json:
        print_json([_answer_json(call, target, found) for call, target, found in answers])
    else:
        rows = [
            [
                call.kernel,
                dims_text(call.dims) or "-",
                call.count,
                target,
                found.kind,
                server_text(target, found),
            ]
            for call, target, found in answers
        ]
        print_table(["kernel", "dims", "count", "target", "answer", "served by"], rows)
    allowed = excused(plan, strict)
    misses = [call.kernel for call, _, found in answers if found.kind == "miss"]
    forgiven = sum(kernel in allowed for kernel in misses)
    if misses:
        click.echo(misses_text(len(misses), forgiven, len(answers)), err=True)
    return 1 if len(misses) > forgiven else 0


class _Servers:
    """The kernels of a plan, each on each of its targets; made when first asked for."""

    def __init__(self, plan: Plan) -> None:
        self._kernels = {kernel.name: kernel for kernel in plan.kernels}
        self._known: dict[tuple[str, str], Server] = {}

    def answers(self, call: Call) -> Iterator[tuple[str, Service]]:
        """Per target of the kernel: how a machine of that target serves the call."""
        for target in dict.fromkeys(variant.target.name for variant in self._kernels[call.kernel].variants):
            if call.target in (None, target):
                yield target, self._server(call.kernel, target).service(call.dims)

    def _server(self, kernel: str, target: str) -> Server:
        from tilec.build.answers.dispatch import Server

        if (kernel, target) not in self._known:
            self._known[kernel, target] = Server(self._kernels[kernel], target)
        return self._known[kernel, target]


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
