"""What `tilec tune` prints and writes when it is done."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tilec.cli.printing.output import print_json, print_table, print_warning
from tilec.portable.dims import dims_text
from tilec.spelling import counted

if TYPE_CHECKING:
    from tilec.manifest import Plan
    from tilec.manifest.tuned import TunedEntry
    from tilec.tune import Manner, Result, Selection


@dataclass(frozen=True)
class Output:
    """Where results go: standard output, as a table or as JSON; a ``report``; a ``table`` of CSV; the file
    that ``schedules`` are put into."""

    manifest: Path
    as_json: bool
    report: Path | None
    table: Path | None
    schedules: Path | None = None

    def write(self, plan: Plan, results: Sequence[Result], entries: Sequence[TunedEntry]) -> None:
        """Prints the winners and writes the files."""
        from tilec.cli.tuning.schedules import write_schedules
        from tilec.tune.report import write_csv, write_report

        if self.schedules is not None:
            write_schedules(self.manifest, self.schedules, plan, results)
        elif self.as_json:
            print_json([_entry_json(entry) for entry in entries])
        else:
            _print_entries(entries)
        if self.table is not None:
            write_csv(self.table, results)
        if self.report is not None:
            write_report(self.report, results, f"Tuning of {self.manifest.name}")


def _entry_json(entry: TunedEntry) -> dict[str, Any]:
    fields = entry.model_dump(mode="json", exclude_none=True, exclude={"dims"})
    return {**fields, "dims": {name: str(guard) for name, guard in entry.dims.items()}}


def _print_entries(entries: Sequence[TunedEntry]) -> None:
    rows = []
    for entry in entries:
        gain = f"{entry.default_us / entry.latency_us:.3f}" if entry.default_us else "-"
        config = " ".join(f"{key}={value}" for key, value in entry.config.items())
        latency = f"{entry.latency_us:g}"
        rows.append([entry.kernel, entry.target, _guards(entry.dims), latency, gain, _rate(entry), config])
    print_table(["kernel", "target", "guards", "us", "gain", "rate", "config"], rows)


def _rate(entry: TunedEntry) -> str:
    rate = f"{entry.tflops:g} TFLOP/s" if entry.tflops else f"{entry.gbps:g} GB/s" if entry.gbps else "-"
    return f"{rate}, {entry.share:.0%}" if entry.share else rate


def _guards(dims: Mapping[str, Any]) -> str:
    return dims_text(dims) or "-"


def print_preview(manifest: Path, selection: Selection, manner: Manner, jobs: int, as_json: bool) -> int:
    """What a run would do."""
    from tilec.tune.engine import preview

    found = preview(manifest, selection, manner, jobs=jobs)
    for remark in dict.fromkeys(remark for one in found for remark in one.remarks):
        print_warning(remark)
    if as_json:
        print_json([{**asdict(one), "seconds": one.seconds} for one in found])
        return 0
    rows = [
        [one.title, one.size, one.configs, one.left, _counts(one.pruned), one.points, f"{one.seconds:.0f} s"]
        for one in found
    ]
    print_table(["variant", "choices", "configs", "to measure", "left out", "points", "about"], rows)
    for kind, reason in dict.fromkeys(pair for one in found for pair in one.reasons.items()):
        if kind != "same code":
            click.echo(f"left out for {kind}: {reason}")
    time = counted(math.ceil(sum(one.seconds for one in found) / 60), "minute")
    click.echo(f"{counted(len(found), 'variant')}, about {time} with {counted(jobs, 'job')}")
    return 0


def _counts(pruned: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in pruned.items()) or "-"


def print_status(manifest: Path, selection: Selection, as_json: bool) -> int:
    """What is tuned, stale or untuned."""
    from tilec.tune.status import NO_SPACE, status

    found = status(manifest, targets=selection.targets, kernels=selection.kernels)
    if as_json:
        keys = ("kernel", "target", "guards", "state", "points")
        print_json([{key: getattr(one, key) for key in keys} for one in found])
        return 0
    rows = [
        [one.kernel, one.target, one.guards or "-", one.state, _measured(one.entry), "; ".join(one.points)]
        for one in found
        if one.state != NO_SPACE
    ]
    print_table(["kernel", "target", "guards", "state", "measured", "points"], rows)
    states = [one.state for one in found]
    click.echo(", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states)))
    return 0


def _measured(entry: TunedEntry | None) -> str:
    return "-" if entry is None else f"{entry.latency_us:g} us on {entry.device}, {entry.date}"
