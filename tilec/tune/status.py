"""What of a manifest is tuned, stale or untuned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tilec.manifest import load_manifest
from tilec.manifest.sources import source_sha256
from tilec.manifest.tuned import TunedEntry, read_tuned
from tilec.portable.dims import dims_text
from tilec.tune.plan.problems import agenda

TUNED, STALE, UNTUNED, NO_SPACE, UNUSED = "tuned", "stale", "untuned", "no space", "unused"


@dataclass(frozen=True)
class Status:
    """A variant, or an entry that belongs to none. ``points``: where it is measured."""

    kernel: str
    target: str
    guards: str
    state: str
    points: tuple[str, ...] = ()
    entry: TunedEntry | None = None


def status(manifest: str | Path, *, targets: Sequence[str] = (), kernels: Sequence[str] = ()) -> list[Status]:
    """The state of every variant, in the order of the manifest, then entries that no variant uses."""
    path = Path(manifest)
    found = agenda(path, targets=targets, kernels=kernels)
    tuned = found.tuned
    points = {
        problem.variant.title: tuple(point.text for point in problem.points) for problem in found.problems
    }
    states = []
    for variant in found.plan.variants:
        entry = tuned.entry(variant.kernel, variant.target.name, variant.dims)
        guards = dims_text(variant.dims)
        known = points.get(variant.title, ())
        if entry is not None:
            changed = source_sha256(variant.source, variant.base) != entry.source_sha256
            state = STALE if changed else TUNED
        else:
            state = UNTUNED if known else NO_SPACE
        states.append(Status(variant.kernel, variant.target.name, guards, state, known, entry))
    return [*states, *_unused(path, targets, kernels)]


def _unused(path: Path, targets: Sequence[str], kernels: Sequence[str]) -> list[Status]:
    if targets or kernels:
        return []
    used = {
        (one.kernel, one.target.name, tuple(sorted((name, str(guard)) for name, guard in one.dims.items())))
        for one in load_manifest(path, use_tuned=False).variants
    }
    return [
        Status(entry.kernel, entry.target, dims_text(entry.dims), UNUSED, entry.at, entry)
        for entry in read_tuned(path).entries
        if (entry.kernel, entry.target, tuple(sorted((n, str(g)) for n, g in entry.dims.items()))) not in used
    ]
