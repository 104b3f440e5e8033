"""`tilec verify`: is every variant of a library right."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tilec.cli.params import Device, Dims
from tilec.cli.printing.output import print_json, print_table
from tilec.spelling import counted

if TYPE_CHECKING:
    from tilec.verify import CaseResult, Finding


@click.command("verify")
@click.argument("library", type=click.Path(path_type=Path))
@click.option("--manifest", type=click.Path(path_type=Path), help="Use the references and inputs it names.")
@click.option(
    "--kernel", "kernels", multiple=True, metavar="GLOB", help="Verify these kernels only; repeatable."
)
@click.option("--variant", type=int, help="Verify the variant of this id only.")
@click.option("--dims", type=Dims(), help="Run this one case.")
@click.option(
    "--values",
    type=click.Choice(("random", "special")),
    default="random",
    show_default=True,
    help="With --dims: what inputs hold; special: NaN and infinities.",
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of shapes and inputs."
)
@click.option(
    "--device",
    type=Device(),
    default="cpu",
    show_default=True,
    help="Where to run: cpu, cuda, cuda:1, hip, metal.",
)
@click.option("--emulate", is_flag=True, help="Run the variants for GPUs on an emulated device.")
@click.option(
    "-j", "--jobs", type=click.IntRange(min=1), help="Processes. [default: TILEC_JOBS, else one per core]"
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    library: Path,
    manifest: Path | None,
    kernels: tuple[str, ...],
    variant: int | None,
    dims: Mapping[str, int] | None,
    values: str,
    seed: int,
    device: str,
    emulate: bool,
    jobs: int | None,
    as_json: bool,
) -> int:
    """Check LIBRARY (a .so or a build folder), and every variant of it at the edges of its guards.

    The file comes first: digests of its sections, symbols, what it needs. Each case runs twice, on guarded
    arrays, with outputs that start as poison; one of each variant has NaN and infinities among its inputs,
    and calls outside of the guards must be refused. With --device cuda the variants with CUDA code run on
    that GPU, through the driver alone. With --emulate they run on the CPU, and stop at races, stray accesses
    and deadlocks; what runs is the form that machine code is generated from.

    The oracle is the reference that --manifest names, else the interpreter on the tile IR that the library
    carries. Exit code 1: a variant is wrong.
    """
    from tilec.build.processes.pool import default_jobs
    from tilec.families import host_family
    from tilec.verify import audit_library, verify_library

    if emulate and device != host_family().device:
        raise click.UsageError("--emulate and --device exclude each other")
    if values != "random" and dims is None:
        raise click.UsageError("--values is of one case; give its --dims")
    findings = audit_library(library)
    results = verify_library(
        library,
        manifest=manifest,
        kernels=kernels or ("*",),
        variant=variant,
        dims=dims,
        seed=seed,
        device=device,
        emulate=emulate,
        values=values,
        jobs=jobs or default_jobs(),
        progress=_progress,
    )
    if as_json:
        audit = [asdict(finding) for finding in findings]
        print_json({"audit": audit, "cases": [asdict(result) for result in results]})
    else:
        print_table(["file", "detail", "result"], [_finding_row(finding) for finding in findings])
        click.echo()
        _print_results(results)
    return max(_report_findings(library, findings), _report_failures(library, manifest, results))


def _finding_row(finding: Finding) -> list[object]:
    return [finding.what, finding.detail or "-", "FAILED" if finding.problem else "ok"]


def _report_findings(library: Path, findings: Sequence[Finding]) -> int:
    """Says on stderr what is wrong with the file; returns the exit code."""
    wrong = [finding for finding in findings if finding.problem]
    for finding in wrong:
        click.echo(f"{library}: {finding.what}: {finding.problem}", err=True)
    return 1 if wrong else 0


def _progress(result: CaseResult) -> None:
    """One line per case while a person waits."""
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{result.kernel} {result.variant} {result.dims_text}", err=True, nl=False)


def _print_results(results: Sequence[CaseResult]) -> None:
    """One row per variant."""
    groups = groupby(results, key=lambda result: (result.kernel, result.variant, result.target))
    headers = ["kernel", "id", "target", "cases", "oracle", "error", "result"]
    print_table(headers, [[*head, *_summary(list(cases))] for head, cases in groups])


def _summary(cases: Sequence[CaseResult]) -> list[object]:
    oracles = ", ".join(dict.fromkeys(case.oracle for case in cases))
    failed = sum(case.outcome == "failed" for case in cases)
    skipped = sum(case.outcome == "skipped" for case in cases)
    counts = [f"{failed} FAILED" if failed else "", f"{skipped} skipped" if skipped else ""]
    verdict = ", ".join(count for count in counts if count) or "ok"
    errors = [case.error for case in cases if case.outcome != "skipped"]
    return [len(cases), oracles, f"{max(errors):.1e}" if errors else "-", verdict]


def _is_of_gpus(result: CaseResult) -> bool:
    """Whether a case on this machine's cores is one of a variant for GPUs."""
    from tilec.families import host_family
    from tilec.targets import parse_target

    host = host_family()
    return result.device == host.device and parse_target(result.target).family != host.name


def _report_failures(library: Path, manifest: Path | None, results: Sequence[CaseResult]) -> int:
    """Says on stderr what is wrong and how to see it again; returns the exit code."""
    failed = [result for result in results if result.outcome == "failed"]
    skipped = [result for result in results if result.outcome == "skipped"]
    for result in failed:
        click.echo(f"{result.kernel}, variant {result.variant} on {result.target}: {result.detail}", err=True)
        click.echo(f"  again: {result.command(library, manifest)}", err=True)
    for text in dict.fromkeys(f"{result.kernel} on {result.target}: {result.detail}" for result in skipped):
        click.echo(f"skipped {text}", err=True)
    if any(map(_is_of_gpus, skipped)):
        click.echo("code for GPUs runs on this CPU with --emulate, on a GPU with --device", err=True)
    click.echo(f"{counted(len(results), 'case')}: {len(failed)} failed, {len(skipped)} skipped", err=True)
    return 1 if failed else 0
