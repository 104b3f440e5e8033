"""`tilec tune`: which config is fastest where, and the file that remembers it."""

from __future__ import annotations

import math
import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tilec.cli.output import counted, print_json, print_table

if TYPE_CHECKING:
    from tilec.tune import Manner, Outcome, Selection


class Duration(click.ParamType):  # type: ignore[type-arg]
    """``90``, ``90s``, ``10m`` or ``2h`` as seconds."""

    name = "10m"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Seconds."""
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", str(value).strip())
        if not found:
            self.fail(f"{value!r} is no time; write 90s, 10m or 2h", param, ctx)
        return float(found.group(1)) * {"": 1, "s": 1, "m": 60, "h": 3600}[found.group(2)]


@click.command("tune")
@click.argument("manifest", type=click.Path(path_type=Path))
@click.option("--kernel", "kernels", multiple=True, metavar="GLOB", help="Tune these only; repeatable.")
@click.option("--target", "targets", multiple=True, metavar="TARGET", help="Tune for these only; repeatable.")
@click.option("--shapes", type=click.Path(path_type=Path), help="Measure the calls of a model, as in check.")
@click.option("--devices", default="cpu", show_default=True, help="Where to measure: cpu, cuda:0,cuda:1.")
@click.option(
    "--threads", type=click.IntRange(min=0), default=0, help="Of the CPU; one is pinned.  [default: all]"
)
@click.option("--dry-run", is_flag=True, help="Say what would be done, and how long it takes.")
@click.option("--status", "show_status", is_flag=True, help="List tuned, stale and untuned variants.")
@click.option(
    "--strategy", type=click.Choice(["halving", "exhaustive", "tpe"]), default="halving", show_default=True
)
@click.option("--trials", type=click.IntRange(min=1), help="Measure at most so many configs of a variant.")
@click.option("--budget", type=Duration(), help="Stop after so long; the best so far counts.")
@click.option("--timeout", type=Duration(), default="30s", show_default=True, help="Of one config.")
@click.option(
    "--cache",
    type=click.Choice(["cold", "warm"]),
    help="Of the inputs.  [default: cold on GPUs, warm on CPUs]",
)
@click.option("--fresh", is_flag=True, help="Measure again what an interrupted run left.")
@click.option(
    "-j",
    "--jobs",
    type=click.IntRange(min=1),
    help="Compile processes.  [default: TILEC_JOBS, else one per core]",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    manifest: Path,
    kernels: tuple[str, ...],
    targets: tuple[str, ...],
    shapes: Path | None,
    devices: str,
    threads: int,
    dry_run: bool,
    show_status: bool,
    strategy: str,
    trials: int | None,
    budget: float | None,
    timeout: float,
    cache: str | None,
    fresh: bool,
    jobs: int | None,
    as_json: bool,
) -> int:
    """Find the fastest config of every variant of MANIFEST that has a [kernel.tune] table.

    Every config is checked before it is timed, in a process that may crash or hang. Winners go to
    <stem>.tuned.toml beside the manifest, where build finds them. An interrupted run goes on where it was.
    Exit code 1: a variant has no config that works.
    """
    from tilec.build.pool import default_jobs
    from tilec.tune import Manner, Selection

    selection = Selection(targets, kernels, shapes, tuple(devices.split(",")), threads)
    manner = Manner(strategy, trials, timeout, None if cache is None else cache == "cold", budget)
    processes = jobs or default_jobs()
    if show_status:
        return _print_status(manifest, selection, as_json)
    if dry_run:
        return _print_preview(manifest, selection, manner, processes, as_json)
    return _tune(manifest, selection, manner, processes, fresh, as_json)


def _tune(manifest: Path, selection: Selection, manner: Manner, jobs: int, fresh: bool, as_json: bool) -> int:
    from tilec.cli.tune_live import watcher
    from tilec.tune import tune

    with watcher() as watching:
        outcome = tune(manifest, selection, manner, jobs=jobs, watcher=watching, fresh=fresh)
    if as_json:
        print_json(
            [
                entry.model_dump(mode="json", exclude_none=True) | {"dims": _dims(entry.dims)}
                for entry in outcome.entries
            ]
        )
    else:
        _print_outcome(outcome)
    return 0 if all(result.winner is not None for result in outcome.results) else 1


def _print_outcome(outcome: Outcome) -> None:
    rows = []
    for entry in outcome.entries:
        gain = f"{entry.default_us / entry.latency_us:.3f}" if entry.default_us else "-"
        rows.append(
            [
                entry.kernel,
                entry.target,
                _guards(entry.dims),
                f"{entry.latency_us:g}",
                gain,
                _rate(entry),
                _config(entry.config),
            ]
        )
    print_table(["kernel", "target", "guards", "us", "gain", "rate", "config"], rows)
    click.echo(f"{counted(len(outcome.entries), 'variant')} in {outcome.seconds:.0f} s", err=True)


def _rate(entry: Any) -> str:
    rate = f"{entry.tflops:g} TFLOP/s" if entry.tflops else f"{entry.gbps:g} GB/s" if entry.gbps else "-"
    return f"{rate}, {entry.share:.0%}" if entry.share else rate


def _config(config: dict[str, Any]) -> str:
    return " ".join(f"{key}={value}" for key, value in config.items())


def _dims(dims: Any) -> dict[str, str]:
    return {name: str(guard) for name, guard in dims.items()}


def _guards(dims: Any) -> str:
    return " ".join(f"{name}={guard}" for name, guard in dims.items()) or "-"


def _print_preview(manifest: Path, selection: Selection, manner: Manner, jobs: int, as_json: bool) -> int:
    from tilec.tune.engine import preview

    found = preview(manifest, selection, manner, jobs=jobs)
    if as_json:
        print_json([{**asdict(one), "seconds": one.seconds} for one in found])
        return 0
    rows = [
        [one.title, one.size, one.configs, one.left, _counts(one.pruned), one.points, f"{one.seconds:.0f} s"]
        for one in found
    ]
    print_table(["variant", "choices", "configs", "to measure", "left out", "points", "about"], rows)
    minutes = math.ceil(sum(one.seconds for one in found) / 60)
    click.echo(
        f"{counted(len(found), 'variant')}, about {counted(minutes, 'minute')} with {counted(jobs, 'job')}"
    )
    return 0


def _counts(pruned: dict[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in pruned.items()) or "-"


def _print_status(manifest: Path, selection: Selection, as_json: bool) -> int:
    from tilec.tune.status import status

    found = status(manifest, targets=selection.targets, kernels=selection.kernels)
    if as_json:
        print_json(
            [
                {
                    "kernel": one.kernel,
                    "target": one.target,
                    "guards": one.guards,
                    "state": one.state,
                    "points": one.points,
                }
                for one in found
            ]
        )
        return 0
    rows = [
        [
            one.kernel,
            one.target,
            one.guards or "-",
            one.state,
            _measured(one.entry),
            "; ".join(one.points) or "-",
        ]
        for one in found
        if one.state != "no space"
    ]
    print_table(["kernel", "target", "guards", "state", "measured", "points"], rows)
    counts = {
        state: sum(one.state == state for one in found) for state in dict.fromkeys(one.state for one in found)
    }
    click.echo(", ".join(f"{count} {state}" for state, count in counts.items()))
    return 0


def _measured(entry: Any) -> str:
    return "-" if entry is None else f"{entry.latency_us:g} us on {entry.device}, {entry.date}"
