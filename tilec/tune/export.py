"""A folder with all candidates and a program that measures them on a machine with nothing but Python."""

from __future__ import annotations

import datetime
import json
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import tilec
from tilec.build.processes.attempts import run_all
from tilec.build.records import CompiledVariant
from tilec.build.reuse.compiled import find, keep
from tilec.cache import Store, digest
from tilec.disk import require_writable
from tilec.errors import TuneError
from tilec.families import family_of
from tilec.settings import read_settings
from tilec.trials.oracle import Author, authors
from tilec.tune.measure.backends import Backend, Local
from tilec.tune.measure.candidates import Made, Uncompiled, compile_safely, entry_name, link, registers_text
from tilec.tune.measure.runs import plan_one, tvm_version
from tilec.tune.outcome.results import About, about
from tilec.tune.plan.contents import write_problem
from tilec.tune.plan.planning import Planned
from tilec.tune.plan.problems import Agenda, agenda, require_problems
from tilec.tune.plan.sweeps import Sweep
from tilec.tune.watch import Watcher

#: What the folder takes from tilec, as it is; the packages around it are empty.
_SHARED = tuple(f"portable/{name}.py" for name in ("loader", "timing", "graphs", "nearness", "cores", "dims"))
_FOLDERS = ("runner", "devices")
#: Candidates of one library.
_BATCH = 16


@dataclass(frozen=True)
class Exported:
    """What an export wrote. ``left_out``: configs that were pruned or could not be compiled; ``devices``:
    what candidates are for, "cpu" or "cuda:0"."""

    folder: Path
    problems: int
    candidates: int
    left_out: int
    size: int
    devices: tuple[str, ...]


@dataclass(frozen=True)
class Part:
    """Which part of the problems goes into a folder: number ``index`` of ``count``, dealt in turns."""

    index: int = 0
    count: int = 1


def export(
    manifest: str | Path,
    folder: str | Path,
    *,
    targets: Iterable[str] = (),
    kernels: Iterable[str] = (),
    shapes: Path | None = None,
    sweep: Sweep | None = None,
    trials: int | None = None,
    cold: bool | None = None,
    jobs: int = 1,
    part: Part = Part(),
    watcher: Watcher | None = None,
) -> Exported:
    """Builds the candidates of every variant that is meant into ``folder``; no device is needed.

    ``trials``: the most promising ones alone, so many of each variant. Raises InputError where there is
    nothing to tune, TuneError where the folder is not empty, PackageError where it cannot be written."""
    out = Path(folder)
    if out.exists() and any(out.iterdir()):
        raise TuneError(f"{out} is not empty", remedy="name a folder that is not there yet")
    require_writable(out)
    found = agenda(manifest, targets=tuple(targets), kernels=tuple(kernels), shapes=shapes, sweep=sweep)
    found = replace(found, problems=found.problems[part.index :: part.count])
    require_problems(found)
    backend = Local((), jobs=jobs)
    try:
        exporter = _Exporter(found, out, backend, authors(manifest), watcher or Watcher())
        described = [exporter.problem(at, trials, cold) for at in range(len(found.problems))]
    finally:
        backend.close()
    created = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    run = digest(created, json.dumps([one["about"]["id"] for one in described]))[:16]
    (out / "export.json").write_text(json.dumps({"run": run, "created": created, "problems": described}))
    _copy_program(out)
    size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    devices = tuple(dict.fromkeys(one["device"] for one in described))
    return Exported(out, len(described), exporter.candidates, exporter.left_out, size, devices)


def _none_possible(planned: Planned) -> TuneError:
    lines = [f"{count} {kind}: {planned.reasons[kind]}" for kind, count in planned.counts.items()]
    return TuneError(
        f"no config of {planned.problem.title} is possible",
        place=planned.problem.variant.place,
        why="\n".join(lines),
        remedy="correct what is said, or give [kernel.tune] other values",
    )


class _Exporter:
    def __init__(
        self, found: Agenda, out: Path, backend: Backend, known: Mapping[str, Author], watcher: Watcher
    ) -> None:
        self._found, self._out, self._backend, self._authors = found, out, backend, known
        self._watcher = watcher
        settings = read_settings()
        self._store = Store(settings.cache_dir) if settings.cache else None
        self.candidates = self.left_out = 0

    def problem(self, at: int, trials: int | None, cold: bool | None) -> dict[str, Any]:
        """Writes the folder and the libraries of a problem; returns what the program needs to know."""
        problem = self._found.problems[at]
        planned = plan_one(self._backend, problem, None)
        self._watcher.planned(planned)
        if not planned.order:
            raise _none_possible(planned)
        order = planned.order if trials is None else planned.order[:trials]
        author = self._authors.get(problem.variant.kernel, Author())
        points = write_problem(self._out / f"problem_{at}", planned, author)
        made = self._compiled(planned, order)
        code = {number: one for number in order if isinstance(one := made[number], CompiledVariant)}
        compiler = next((one.record.image.compiler for one in code.values()), "") or tvm_version()
        known = _with_failures(about(planned, points, compiler), made)
        candidates = self._linked(at, code, problem.kernel.tolerance)
        self.candidates += len(candidates)
        self.left_out += len(problem.configs) - len(candidates)
        family = family_of(problem.variant.target)
        warm = family.on_host if cold is None else not cold
        return {
            "about": asdict(known),
            "folder": f"problem_{at}",
            "device": str(family.device_at(0)),
            "cold": not warm,
            "candidates": candidates,
        }

    def _compiled(self, planned: Planned, order: Iterable[int]) -> dict[int, Made]:
        variants = {number: planned.problem.candidate(number) for number in order}
        made: dict[int, Made] = {}
        for number, variant in variants.items():
            found = find(self._store, variant) if self._store is not None else None
            if found is not None:
                made[number] = found

        def done(number: int, one: Made | None) -> bool:
            made[number] = one or Uncompiled("the compile process died")
            self._watcher.compiled(planned.problem, number)
            if self._store is not None and isinstance(one, CompiledVariant):
                keep(self._store, variants[number], one)
            return True

        tasks = [(number, variant) for number, variant in variants.items() if number not in made]
        run_all(self._backend.compilers, compile_safely, tasks, self._backend.at_once, done)
        return made

    def _linked(
        self, at: int, code: Mapping[int, CompiledVariant], tolerance: Mapping[str, float]
    ) -> list[dict[str, Any]]:
        found, numbers = [], list(code)
        for start in range(0, len(numbers), _BATCH):
            batch = {number: code[number] for number in numbers[start : start + _BATCH]}
            library = f"libraries/problem_{at}_{start // _BATCH}.so"
            link(batch, self._found.plan.host, self._out / library, tolerance)
            found += [
                {
                    "number": number,
                    "library": library,
                    "entry": entry_name(number),
                    "detail": registers_text(one),
                }
                for number, one in batch.items()
            ]
        return found


def _with_failures(known: About, made: Mapping[int, Made]) -> About:
    """The configs that no code could be made of, among those that were left out."""
    failed = tuple(
        (number, "not compiled", one.reason) for number, one in made.items() if isinstance(one, Uncompiled)
    )
    return replace(known, pruned=(*known.pruned, *failed))


def _copy_program(out: Path) -> None:
    source = Path(tilec.__file__).parent
    folders = [source / "portable" / name for name in _FOLDERS]
    found = [path.relative_to(source) for folder in folders for path in folder.glob("*.py")]
    for file in (*map(Path, _SHARED), *found):
        target = out / "tilec" / file
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / file, target)
    for package in ("tilec", "tilec/portable"):
        (out / package / "__init__.py").touch()
    shutil.copyfile(source / "portable" / "runner" / "run.py", out / "run.py")
