"""`tilec tune`: which config is fastest where, and the file that remembers it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tilec.cli.params import Device
from tilec.cli.printing.output import print_warning, size_text
from tilec.spelling import counted

if TYPE_CHECKING:
    from tilec.cli.tuning.summary import Output
    from tilec.tune import Manner, Selection
    from tilec.tune.measure.backends import Backend
    from tilec.tune.plan.sweeps import Sweep


class Duration(click.ParamType):  # type: ignore[type-arg]
    """``90``, ``90s``, ``10m`` or ``2h`` as seconds."""

    name = "10m"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Seconds."""
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", str(value).strip())
        if not found:
            self.fail(f"{value!r} is no time; write 90s, 10m or 2h", param, ctx)
        return float(found.group(1)) * {"": 1, "s": 1, "m": 60, "h": 3600}[found.group(2)]


class Part(click.ParamType):  # type: ignore[type-arg]
    """``2/3``: the second of three parts."""

    name = "2/3"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        """Which, from 0, and of how many."""
        found = re.fullmatch(r"(\d+)/(\d+)", str(value).strip())
        if not found or not 1 <= int(found.group(1)) <= int(found.group(2)):
            self.fail(f"{value!r} is no part; write 1/3, 2/3 or 3/3", param, ctx)
        return int(found.group(1)) - 1, int(found.group(2))


class Devices(click.ParamType):  # type: ignore[type-arg]
    """``cuda:0,cuda:1`` as a tuple."""

    name = "DEVICES"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Names of devices."""
        return tuple(Device().convert(part.strip(), param, ctx) for part in str(value).split(","))


_PATH = click.Path(path_type=Path)
#: Configs of a variant that are measured for schedules, unless --trials says otherwise.
_TRIALS = 32


@click.command("tune")
@click.argument("manifest", type=_PATH)
@click.option("--kernel", "kernels", multiple=True, metavar="GLOB", help="Tune these only; repeatable.")
@click.option("--target", "targets", multiple=True, metavar="TARGET", help="Tune for these only; repeatable.")
@click.option("--shapes", type=_PATH, help="Measure the calls of a model, as in check.")
@click.option("--schedules", "out", type=_PATH, help="Make schedules for the shapes of calls into this file.")
@click.option("--random", "count", type=click.IntRange(min=0), help="With it: at so many drawn shapes.  [32]")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the shapes drawn.")
@click.option(
    "--devices",
    type=Devices(),
    default="cpu",
    show_default=True,
    help="Where to measure: cpu, hip:0, cuda:0,cuda:1.",
)
@click.option("--threads", type=click.IntRange(min=0), default=0, help="Of the CPU; one is pinned.  [all]")
@click.option("--scheduler", metavar="ADDRESS", help="Compile and measure on a dask.distributed cluster.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and how long it takes.")
@click.option("--status", "show_status", is_flag=True, help="List tuned, stale and untuned variants.")
@click.option("--export", "folder", type=_PATH, help="Build the candidates and a program into a new folder.")
@click.option("--part", type=Part(), default="1/1", help="With --export: a part of the variants.")
@click.option("--merge", "files", multiple=True, type=_PATH, help="Take in its results; repeatable.")
@click.option(
    "--strategy", type=click.Choice(["halving", "exhaustive", "tpe"]), default="halving", show_default=True
)
@click.option("--trials", type=click.IntRange(min=1), help="Measure at most so many configs of a variant.")
@click.option("--budget", type=Duration(), help="Stop after so long; the best so far counts.")
@click.option("--timeout", type=Duration(), default="30s", show_default=True, help="Of one config.")
@click.option("--cache", type=click.Choice(["cold", "warm"]), help="Of inputs.  [GPUs cold, CPUs warm]")
@click.option("--fresh", is_flag=True, help="Measure again what an interrupted run left.")
@click.option("-j", "--jobs", type=click.IntRange(min=1), help="Compile processes.  [TILEC_JOBS, else cores]")
@click.option("--report", type=_PATH, help="Write a page with pictures.")
@click.option("--csv", "table", type=_PATH, help="Write a line for every config.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    manifest: Path,
    kernels: tuple[str, ...],
    targets: tuple[str, ...],
    shapes: Path | None,
    out: Path | None,
    count: int | None,
    seed: int,
    devices: tuple[str, ...],
    threads: int,
    scheduler: str | None,
    dry_run: bool,
    show_status: bool,
    folder: Path | None,
    part: tuple[int, int],
    files: tuple[Path, ...],
    strategy: str,
    trials: int | None,
    budget: float | None,
    timeout: float,
    cache: str | None,
    fresh: bool,
    jobs: int | None,
    report: Path | None,
    table: Path | None,
    as_json: bool,
) -> int:
    """Find the fastest config of every variant of MANIFEST that has a [kernel.tune] table.

    Every config is checked before it is timed, in a process that may crash or hang. Winners go to
    <stem>.tuned.toml beside the manifest, where build finds them. An interrupted run goes on where it was.
    With --export no device is needed: `python DIR/run.py` measures on a machine with nothing but Python, and
    --merge takes in the results.jsonl that it writes. Exit code 1: a variant has no config that works.

    With --schedules configs are measured at the calls of --shapes, at shapes drawn within the guards, or
    both. Costs are fitted to three quarters of them; the file gets a few schedules of each variant, which the
    others are tried on. The manifest names them in an override."""
    from tilec.build.processes.pool import default_jobs
    from tilec.cli.tuning.summary import Output, print_preview, print_status
    from tilec.tune import Manner, Selection

    if out is None and count is not None:
        raise click.UsageError("--random belongs to --schedules")
    selection = Selection(targets, kernels, shapes, devices, threads, _sweep(out, shapes, count, seed))
    trials = trials or (None if out is None else _TRIALS)
    manner = Manner(strategy, trials, timeout, None if cache is None else cache == "cold", budget)
    output, processes = Output(manifest, as_json, report, table, out), jobs or default_jobs()
    if show_status:
        return print_status(manifest, selection, as_json)
    if files:
        return _merge(manifest, files, output)
    if folder is not None:
        return _export(manifest, folder, selection, manner, processes, part)
    if dry_run:
        return print_preview(manifest, selection, manner, processes, as_json)
    return _tune(manifest, selection, manner, processes, fresh, output, scheduler)


def _sweep(out: Path | None, shapes: Path | None, count: int | None, seed: int) -> Sweep | None:
    from tilec.tune.plan.sweeps import Sweep

    if out is None:
        return None
    usual = Sweep().count if shapes is None else 0
    return Sweep(usual if count is None else count, seed)


def _tune(
    manifest: Path,
    selection: Selection,
    manner: Manner,
    jobs: int,
    fresh: bool,
    output: Output,
    scheduler: str | None,
) -> int:
    from tilec.cli.tuning.live import watcher
    from tilec.tune import tune

    backend: Backend | None = None
    if scheduler is not None:
        from tilec.tune.measure.cluster import Cluster

        backend = Cluster(scheduler, selection.devices, selection.threads)
    with watcher() as watching:
        outcome = tune(manifest, selection, manner, jobs=jobs, backend=backend, watcher=watching, fresh=fresh)
    output.write(outcome.plan, outcome.results, outcome.entries)
    click.echo(f"{counted(len(outcome.results), 'variant')} in {outcome.seconds:.0f} s", err=True)
    return 0 if all(result.winner is not None for result in outcome.results) else 1


def _export(
    manifest: Path, folder: Path, selection: Selection, manner: Manner, jobs: int, part: tuple[int, int]
) -> int:
    from tilec.cli.tuning.live import watcher
    from tilec.tune.export import Part, export

    with watcher() as watching:
        made = export(
            manifest,
            folder,
            targets=selection.targets,
            kernels=selection.kernels,
            shapes=selection.shapes,
            sweep=selection.sweep,
            trials=manner.trials,
            cold=manner.cold,
            jobs=jobs,
            part=Part(*part),
            watcher=watching,
        )
    counts = f"{counted(made.candidates, 'candidate')} of {counted(made.problems, 'variant')}"
    click.echo(f"{made.folder}: {counts}, {made.left_out} left out, {size_text(made.size)}")
    for device in made.devices:
        there = f"python {made.folder}/run.py --device {device}"
        click.echo(f"there: {there}, and here: --merge {made.folder}/results.jsonl")
    return 0


def _merge(manifest: Path, files: Sequence[Path], output: Output) -> int:
    from tilec.tune.merge import merge

    made = merge(manifest, files)
    for warning in made.warnings:
        print_warning(warning)
    output.write(made.plan, made.results, made.entries)
    return 0 if all(result.winner is not None for result in made.results) else 1
