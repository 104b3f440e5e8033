"""Builds the idioms of tests/kernels/idioms into a folder that times them on a machine with a GPU.

    python benchmarks/gpu/idioms.py [--out DIR] [--kernel GLOB]...

Products without schedule keys (keyless.toml) are among them, beside tuned ones. Prints the road of each
statement on sm_90a. The folder holds the libraries, the shapes at which kernels are timed, and run.py, which
needs Python, NumPy and torch there, but not tilec: it times each kernel beside its plain form and torch, and
writes JSON and the table of docs/performance/gpu-idioms.md. Shapes are the `points` of the kernels' `tune`
tables, the work is in idioms_work.toml. A kernel's floor is the time of the products that its tile IR says
(of those that idioms_work.toml counts, where threads decide), at the rate of a plain product of such
operands, or that of its tensors' bytes at the rate of a copy, whichever is longer.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
from bundle import copy_shared

from tilec.build.library import build
from tilec.ir.roads import Road
from tilec.manifest import KernelPlan, load_manifest
from tilec.manifest.text.document import tomllib
from tilec.package.library.inspect import read_library
from tilec.package.model import ParamRecord, evaluate
from tilec.trials.facts import KernelFacts
from tilec.trials.library import read_facts
from tilec.trials.oracle import Author, authors
from tilec.trials.work import work_of

HERE = Path(__file__).resolve().parent
IDIOMS = HERE.parents[1] / "tests" / "kernels" / "idioms"
MANIFESTS = (
    IDIOMS / "idioms.toml",
    IDIOMS / "attention.toml",
    HERE / "keyless.toml",
    HERE / "plain_forms.toml",
)
TARGET = "sm_90a"
#: The plain product of operands of each type, and the copy, at whose rates floors are reached.
PRODUCTS = {
    "float16": "plain",
    "bfloat16": "plain",
    "float32": "tf32_nt",
    "int8": "int8_nt",
    "float8_e4m3fn": "fp8_nt",
    "float8_e5m2": "fp8_nt",
}
COPY = "copied"
#: Values that integers are drawn from where no author gives them.
_RANGES = {"int8": (-8, 8), "uint8": (0, 256), "int32": (-(2**31), 2**31 - 1)}


@dataclass(frozen=True)
class Run:
    """A kernel at the dims at which it is timed; ``flops``: of its work, 0 where none are counted."""

    plan: KernelPlan
    dims: Mapping[str, int]
    flops: int

    @property
    def label(self) -> str:
        """Kernel and open dims."""
        return " ".join([self.plan.name, *(f"{dim}={size}" for dim, size in self.dims.items())])


class Folder:
    """What is written for the machine with the GPU; ``runs``: how, by label."""

    def __init__(self, out: Path) -> None:
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        self.out = out
        self.runs: dict[str, dict[str, Any]] = {}
        self.integers: dict[str, np.ndarray] = {}

    def add(self, manifest: Path, runs: Iterable[Run]) -> None:
        """Builds the kernels of ``manifest`` that ``runs`` name."""
        own = {plan.name for plan in load_manifest(manifest).kernels}
        runs = [run for run in runs if run.plan.name in own]
        if not runs:
            return
        names = list(dict.fromkeys(run.plan.name for run in runs))
        folder = Path("dist") / "idioms" / manifest.stem
        library = build(manifest, folder, targets=[TARGET], kernels=names).report.library
        shutil.copy(library, self.out / library.name)
        facts = {each.name: each for each in read_facts(library)}
        roads, known = read_library(library).roads(), authors(manifest)
        for run in runs:
            kernel = facts[run.plan.name]
            values = _values(kernel, known.get(kernel.name, Author()), run.dims)
            work = work_of(kernel, kernel.variants[0].ir_text, run.dims, values)
            self.runs[run.label] = {
                "kernel": kernel.name,
                "library": library.name,
                "dims": run.dims,
                "flops": run.flops,
                "products": dict(work.flops) or {kernel.tensors[0].dtype: run.flops},
                "bytes": work.bytes,
                "params": list(self._params(kernel, values, run.dims)),
                "roads": [_road(road) for launch in roads[kernel.variants[0].id] for road in launch],
            }

    def _params(
        self, kernel: KernelFacts, values: Mapping[str, Any], dims: Mapping[str, int]
    ) -> Iterator[dict[str, Any]]:
        """How the machine makes each argument: floats by their mean and deviation, integers as they are."""
        for param in kernel.params:
            value = values.get(param.name)
            if not param.is_tensor:
                yield {"name": param.name, "scalar": 1.0 if value is None else value}
                continue
            made = {"name": param.name, "dtype": param.dtype, "written": param.is_written}
            made["shape"] = param.shape(dims)
            yield made | self._contents(f"{kernel.name}.{param.name}", param, value)

    def _contents(self, key: str, param: ParamRecord, value: Any) -> dict[str, Any]:
        if value is None:
            return {"range": _RANGES[param.dtype]} if param.dtype in _RANGES else {"mean": 0.0, "std": 1.0}
        array = np.asarray(value)
        if "int" in param.dtype or param.dtype == "bool":
            self.integers[key] = array.astype(param.dtype)
            return {"integers": key}
        some = array.reshape(-1)[: 1 << 20].astype(np.float32)
        return {"mean": float(some.mean()), "std": float(some.std())}

    def finish(self, rows: list[dict[str, Any]], ceilings: dict[str, str]) -> None:
        """Writes what the runner reads, and the runner."""
        content = {"runs": self.runs, "rows": rows, "ceilings": ceilings}
        (self.out / "rows.json").write_text(json.dumps(content, indent=1))
        np.savez_compressed(self.out / "integers.npz", **self.integers)
        copy_shared(self.out / "tilec")
        shutil.copy(HERE / "runner" / "timing.py", self.out)
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(HERE / "idioms_runner", self.out, dirs_exist_ok=True, ignore=ignored)


def main() -> None:
    """Builds, writes the folder, prints the roads."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--out", type=Path, default=Path("dist/gpu-idioms"))
    parser.add_argument("--kernel", action="append", metavar="GLOB", help="these kernels alone; repeatable")
    options = parser.parse_args()
    rows = [
        row for row in read_rows() if any(fnmatch(row.run.plan.name, glob) for glob in options.kernel or "*")
    ]
    ceilings = read_ceilings()
    named = [run for row in rows for run in (row.run, row.plain) if run]
    runs = {run.label: run for run in (*ceilings.values(), *named)}
    folder = Folder(options.out)
    for manifest in MANIFESTS:
        folder.add(manifest, runs.values())
    for row in rows:
        print(row.run.label)
        for road in folder.runs[row.run.label]["roads"]:
            print(f"    {road['place']:24s} {road['statement']:40s} {road['road']}")
    folder.finish([row.record() for row in rows], {name: run.label for name, run in ceilings.items()})
    print(f"on the machine with the GPU: python3 {options.out}/run.py")


def _values(kernel: KernelFacts, author: Author, dims: Mapping[str, int]) -> dict[str, Any]:
    """What an author gives for the parameters that are read, by name; nothing where he gives nothing."""
    if author.inputs is None:
        return {}
    read = (param.name for param in kernel.params if param.access != "out")
    return dict(zip(read, author.inputs(dict(dims), np.random.default_rng(0)), strict=True))


@dataclass(frozen=True)
class Row:
    """An idiom, its plain form, and what torch does of its work; ``same``: whether with the same results."""

    run: Run
    plain: Run | None
    torch: str | None
    same: bool

    def record(self) -> dict[str, Any]:
        """For the runner."""
        plain = self.plain.label if self.plain else None
        return {"run": self.run.label, "plain": plain, "torch": self.torch, "same": self.same}


def read_rows(dims_of: Callable[[KernelPlan], dict[str, int]] | None = None) -> list[Row]:
    """One row for each idiom, at the dims that ``dims_of`` says; None: those that are timed on GPUs."""
    plans = {plan.name: plan for manifest in MANIFESTS for plan in load_manifest(manifest).kernels}
    idioms = [plan for manifest in MANIFESTS[:-1] for plan in load_manifest(manifest).kernels]
    work = tomllib.loads((HERE / "idioms_work.toml").read_text())["work"]
    return [_row(plan, plans, work, dims_of or timed_dims) for plan in idioms]


def read_ceilings() -> dict[str, Run]:
    """What gives the rates of floors, by type of operands, and the copy."""
    plans = {plan.name: plan for manifest in MANIFESTS for plan in load_manifest(manifest).kernels}
    runs = {name: _ceiling(plans[name]) for name in (*PRODUCTS.values(), COPY)}
    return {**{dtype: runs[name] for dtype, name in PRODUCTS.items()}, COPY: runs[COPY]}


def _ceiling(plan: KernelPlan) -> Run:
    return Run(plan, timed_dims(plan), 0)


def _row(
    plan: KernelPlan,
    plans: Mapping[str, KernelPlan],
    work: list[dict[str, Any]],
    dims_of: Callable[[KernelPlan], dict[str, int]],
) -> Row:
    own = _work(work, plan.name)
    dims = dims_of(plan)
    run = Run(plan, dims, _flops(own, dims))
    plain = own.get("plain")
    if plain in (None, plan.name):
        return Row(run, None, own.get("torch"), own.get("same", False))
    beside = dims_of(plans[plain])
    beside = dims if dims.keys() == beside.keys() else beside  # the same shape where it has the same dims
    form = Run(plans[plain], beside, _flops(_work(work, plain), beside))
    return Row(run, form, own.get("torch"), own.get("same", False))


def _work(work: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next((each for each in work if any(fnmatch(name, glob) for glob in each["kernels"])), {})


def _flops(work: Mapping[str, Any], dims: Mapping[str, int]) -> int:
    return evaluate(work["flops"], dims) if work else 0


def timed_dims(plan: KernelPlan) -> dict[str, int]:
    """The dims at which a kernel is timed: those of its first point for tuning, and the pinned ones."""
    pinned = {dim: guard.eq for dim, guard in plan.variants[0].dims.items() if guard.eq is not None}
    return {**pinned, **plan.entry.tune.points[0]}


def _road(road: Road) -> dict[str, str]:
    loss = str(road.loss) if road.loss else ""
    said = {"place": road.place, "statement": road.statement, "kind": road.kind, "road": road.instruction}
    return {**said, "loss": loss}


if __name__ == "__main__":
    main()
