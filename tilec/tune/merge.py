"""Results of any number of machines, brought together into the tuned file.

Every record is kept beside the manifest; what the file says follows from all of them, and from what it said
before, so that the order in which files are merged does not matter. Records of one export on devices of one
name count as one run. Of several runs of a variant that one counts whose source has not changed since, then
the lowest latency, then the config's text; what was in the file counts among them, unless a run measured its
config again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilec.errors import InputError, Place, TuneError
from tilec.manifest import Plan, load_manifest
from tilec.manifest.sources import source_sha256
from tilec.manifest.text.document import unreadable
from tilec.manifest.tuned import TunedConfigs, TunedEntry, read_tuned, tuned_path
from tilec.portable.dims import dims_text
from tilec.portable.runner.journal import Journal
from tilec.portable.runner.judge import UNCOMPILED
from tilec.tune.outcome.database import Key, key_of, write_entries
from tilec.tune.outcome.entries import entry_of
from tilec.tune.outcome.results import About, PointFacts, Result, Row, finals_of, scores_of, winner_of


@dataclass(frozen=True)
class Merged:
    """``plan``: of the manifest; ``results``: of every run; ``entries``: what the file says now of the
    variants in them; ``warnings``: lines for people."""

    plan: Plan
    results: tuple[Result, ...]
    entries: tuple[TunedEntry, ...]
    warnings: tuple[str, ...]


def merged_path(manifest: Path) -> Path:
    """Where the records of all merged files are kept."""
    return manifest.parent / ".tilec-tune" / f"{manifest.stem}.merged.jsonl"


def merge(manifest: str | Path, files: Sequence[str | Path]) -> Merged:
    """Merges the results in ``files`` into the tuned file of a manifest.

    Raises InputError for a file that has no results of this manifest, TuneError where nothing can be
    written."""
    path = Path(manifest)
    plan, tuned = load_manifest(path, use_tuned=False), read_tuned(path)
    records = _kept(path, [record for file in files for record in _read(Path(file), plan)])
    results = results_of(records)
    known = {(one.kernel, one.target.name, _text(one.dims)): one for one in plan.variants}
    warnings, entries = [], dict[Key, TunedEntry]()
    for key, found in _by_key(results).items():
        variant = known.get(key)
        if variant is None:
            warnings.append(
                f"results of {' '.join(key)} belong to no variant of the manifest and are not used"
            )
            continue
        source = source_sha256(variant.source, variant.base)
        chosen = _chosen([one for one in found if not one.about.is_sweep], tuned, key, source)
        if chosen is not None:
            entries[key] = chosen
    if entries:
        write_entries(tuned_path(path), entries.values())
    return Merged(plan, tuple(results), tuple(entries[key] for key in sorted(entries)), tuple(warnings))


def results_of(records: Iterable[Mapping[str, Any]]) -> list[Result]:
    """The results that records of a runner come to, one for each run, device and problem."""
    groups: dict[tuple[str, str, int, str], list[Mapping[str, Any]]] = {}
    for record in records:
        key = (record["run"], record["device"]["name"], record["threads"], record["problem"])
        groups.setdefault(key, []).append(record)
    found = [_result(groups[key]) for key in sorted(groups)]
    return [result for result in found if result is not None]


def _result(records: Sequence[Mapping[str, Any]]) -> Result | None:
    described = next((record["about"] for record in records if "about" in record), None)
    if described is None:
        return None
    known, rows = _about(described), dict[int, Row]()
    for number, kind, reason in known.pruned:
        if kind == UNCOMPILED:
            rows[number] = Row(number, UNCOMPILED, detail=reason)
    measured = [record for record in records if "number" in record]
    for record in sorted(measured, key=lambda one: one["seconds"]):
        rows[record["number"]] = Row(
            record["number"], record["outcome"], tuple(record["points"]), record["detail"], record["seconds"]
        )
    scores, finals = scores_of(known, list(rows.values())), {}
    for record in sorted((one for one in records if "finals" in one), key=_last):
        finals.update(finals_of(known, record["numbers"], {"points": record["finals"]}))
    seconds = max((record["seconds"] for record in measured), default=0.0)
    first = records[0]
    return Result(
        known, tuple(rows.values()), finals, first["device"], winner_of(known, scores, finals), seconds,
        threads=first["threads"], date=first["created"][:10],
    )  # fmt: skip


def _last(record: Mapping[str, Any]) -> str:
    return json.dumps(record, sort_keys=True)


def _about(described: Mapping[str, Any]) -> About:
    """An `About` that went through JSON."""
    plain = dict(described)
    plain["points"] = tuple(PointFacts(**one) for one in described["points"])
    plain["configs"] = tuple(described["configs"])
    plain["pruned"] = tuple((number, kind, reason) for number, kind, reason in described["pruned"])
    plain["predicted"] = {int(number): us for number, us in described["predicted"].items()}
    return About(**plain)


def _by_key(results: Iterable[Result]) -> dict[Key, list[Result]]:
    found: dict[Key, list[Result]] = {}
    for result in results:
        known = result.about
        found.setdefault((known.kernel, known.target, _text(known.dims)), []).append(result)
    return found


def _text(dims: Mapping[str, Any]) -> str:
    return dims_text(dict(sorted(dims.items())))


def _chosen(results: Sequence[Result], tuned: TunedConfigs, key: Key, source: str) -> TunedEntry | None:
    """The entry of a variant: the best of all runs and of what the file has."""
    entries = [entry for result in results if (entry := entry_of(result))]
    stored = next((entry for entry in tuned.entries if key_of(entry) == key), None)
    if stored is not None and not any(_measured(result, stored.config) for result in results):
        entries.append(stored)
    return min(entries, key=lambda entry: _order(entry, source), default=None)


def _measured(result: Result, config: Mapping[str, Any]) -> bool:
    """Whether a run has a measurement of a config."""
    numbers = [number for number, one in enumerate(result.about.configs) if dict(one) == dict(config)]
    return any(math.isfinite(result.score(number)) for number in numbers)


def _order(entry: TunedEntry, source: str) -> tuple[bool, float, str]:
    stale = entry.source_sha256 != source
    return stale, entry.latency_us, json.dumps(entry.config, sort_keys=True, default=str) + entry.device


def _read(path: Path, plan: Plan) -> list[dict[str, Any]]:
    place = Place(str(path))
    try:
        path.stat()
        records = Journal(path).read()
    except OSError as error:
        raise unreadable(path, error) from error
    if not records or any(not {"run", "problem", "device"} <= set(one) for one in records):
        remedy = "give the results.jsonl that run.py of an exported folder wrote"
        raise InputError(f"{path} has no results", place=place, remedy=remedy)
    names = {kernel.name for kernel in plan.kernels}
    if not any(record["problem"].partition(" ")[0] in names for record in records):
        raise InputError(f"{path} has results of other kernels", place=place, remedy="merge them elsewhere")
    return records


def _kept(manifest: Path, records: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """All records that were ever merged, these among them."""
    journal = Journal(merged_path(manifest))
    known = {json.dumps(record, sort_keys=True): record for record in journal.read()}
    try:
        for record in records:
            text = json.dumps(record, sort_keys=True)
            if text not in known:
                journal.add(record)
                known[text] = dict(record)
    except OSError as error:
        raise TuneError(
            "the results cannot be kept", place=Place(str(journal.path)), why=error.strerror or str(error)
        ) from error
    finally:
        journal.close()
    return [known[text] for text in sorted(known)]
