"""Times the idioms of tests/kernels/idioms on the CPU of this machine, beside torch, on one thread.

    python benchmarks/cpu/gpu_idioms.py [--target T] [--kernel GLOB]... [--rounds N] [--json FILE]

Kernels are written for GPUs, in the ways of people who write tile kernels, and have no schedule for a CPU.
Sizes are an eighth of those at which benchmarks/gpu/idioms.py times them, where they are open and beyond 512;
torch's work is what idiom_peers.py beside that says, of float16 in float32, which torch multiplies faster on
CPUs. "Rate" is that of the kernel's products over the one of torch's product of 1024^3 of such operands.
Sides take turns; the least of the rounds counts, and kernels and torch are to give the same where their
results are the same. Exit code 1: they do not.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tilec.bench.peers import to_torch
from tilec.build.library import build
from tilec.manifest import KernelPlan, load_manifest
from tilec.portable.devices import open_device
from tilec.portable.loader import load
from tilec.targets import native_target
from tilec.trials.arrays import guarded
from tilec.trials.facts import KernelFacts
from tilec.trials.library import read_facts
from tilec.trials.oracle import Author, Oracle, authors
from tilec.trials.work import work_of

GPU = Path(__file__).resolve().parents[1] / "gpu"
sys.path += [str(GPU), str(GPU / "idioms_runner")]

from idiom_peers import PEERS  # noqa: E402 (beside the runner, which knows no tilec)
from idioms import MANIFESTS, Row, read_rows, timed_dims  # noqa: E402

_LARGE, _PART, _STEP = 512, 8, 64
#: Microseconds that a round of one side takes at least, and those of both from which one round is enough.
_ROUND, _LONG = 20_000, 2_000_000
_NEAR = 2e-2  # norm of the difference over the norm
Arguments = dict[str, Any]


def cpu_dims(plan: KernelPlan) -> dict[str, int]:
    """The dims at which a kernel is timed here."""
    given = timed_dims(plan)
    pinned = {dim for dim, guard in plan.variants[0].dims.items() if guard.eq is not None}
    return {
        dim: size if dim in pinned or size <= _LARGE else max(_LARGE, size // _PART // _STEP * _STEP)
        for dim, size in given.items()
    }


def main() -> int:
    """Times the kernels asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--target", default=native_target().name, help="[default: this machine's]")
    parser.add_argument("--kernel", action="append", metavar="GLOB", help="these kernels alone; repeatable")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, default=Path("idioms.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    rates = {dtype: _rate(dtype) for dtype in ("float32", "bfloat16", "int8")}
    print("torch, GFLOP/s: " + ", ".join(f"{name} {rate * 1e-3:.0f}" for name, rate in rates.items()))
    made, rows = [], [row for row in read_rows(cpu_dims) if _is_asked(row.run.plan, options.kernel or ["*"])]
    for manifest in MANIFESTS[:2]:
        for row, kernel, author, call in _built(manifest, rows, options.target):
            made.append(_measured(row, kernel, author, call, rates, options.rounds))
            options.json.write_text(json.dumps(made, indent=1))
            print(_text(made[-1]), flush=True)
    print("\n".join(_summary(made)))
    return int(any(not each.get("right", True) for each in made))


def _built(
    manifest: Path, rows: list[Row], target: str
) -> Iterator[tuple[Row, KernelFacts, Author, Callable[[Arguments], None]]]:
    """Those of the rows whose kernels a manifest has, with what calls them."""
    own = {plan.name for plan in load_manifest(manifest).kernels}
    rows = [row for row in rows if row.run.plan.name in own]
    if not rows:
        return
    names = [row.run.plan.name for row in rows]
    folder = Path("dist/cpu-idioms") / manifest.stem
    path = build(manifest, folder, targets=[target], kernels=names).report.library
    library, facts, known = load(path), {each.name: each for each in read_facts(path)}, authors(manifest)
    for name, row in zip(names, rows, strict=True):
        kernel = library.kernels[name]
        free = {dim: size for dim, size in row.run.dims.items() if dim in kernel._binds}
        yield row, facts[name], known.get(name, Author()), _call(kernel, free)


def _is_asked(plan: KernelPlan, globs: list[str]) -> bool:
    on_cpus = any(variant.target.is_cpu for variant in plan.variants)
    return on_cpus and any(fnmatch(plan.name, glob) for glob in globs)


def _call(kernel: Any, free: dict[str, int]) -> Callable[[Arguments], None]:
    return lambda given: kernel(num_workers=1, **{**free, **given})


def _arguments(kernel: KernelFacts, author: Author, dims: dict[str, int]) -> Arguments:
    """Inputs of the author or drawn ones; room for results."""
    values = Oracle(kernel, author).inputs(kernel.variants[0], dims, np.random.default_rng(0))
    made, tensor = {}, to_torch(open_device("cpu"))
    for param in kernel.params:
        value = values.get(param.name)
        if value is None and param.is_tensor:
            value = guarded(param, dims).array
        made[param.name] = tensor(value) if param.is_tensor else value
    return made


def _measured(
    row: Row,
    kernel: KernelFacts,
    author: Author,
    call: Callable[[Arguments], None],
    rates: dict[str, float],
    rounds: int,
) -> dict[str, Any]:
    """Microseconds of both sides, and the rate of the kernel's products."""
    told: dict[str, Any] = {"kernel": kernel.name, "dims": dict(row.run.dims)}
    try:
        given = _arguments(kernel, author, dict(row.run.dims))
    except AssertionError as problem:  # of the author's function, of dims that it does not know
        return {**told, "skipped": str(problem)}
    work = work_of(kernel, kernel.variants[0].ir_text, row.run.dims, _known(given))
    sides = {"tilec": lambda: call(given), **_peer(row, given)}
    right = _agrees(row, kernel, given, sides)
    times = _timed(sides, rounds)
    least = sum(flops / rates.get(dtype, rates["float32"]) for dtype, flops in work.flops.items())
    return {**told, "us": times, "rate": least / times["tilec"], "right": right}


def _known(given: Arguments) -> Arguments:
    """What trips of loops may depend on: integers and numbers."""
    tensors = {name: value for name, value in given.items() if isinstance(value, torch.Tensor)}
    numbers = {name: value for name, value in given.items() if name not in tensors}
    return numbers | {name: v.numpy() for name, v in tensors.items() if not v.is_floating_point()}


def _peer(row: Row, given: Arguments) -> dict[str, Callable[[], Any]]:
    """What torch does of the work; nothing where it cannot."""
    if not row.torch:
        return {}
    wide = {
        name: value.float() if isinstance(value, torch.Tensor) and value.dtype == torch.float16 else value
        for name, value in given.items()
    }
    try:
        calls = PEERS[row.torch](wide)
        for each in calls.values():
            each()
    except (RuntimeError, TypeError, AttributeError, KeyError, NotImplementedError):
        return {}
    return calls


def _agrees(row: Row, kernel: KernelFacts, given: Arguments, sides: dict[str, Callable[[], Any]]) -> bool:
    if not row.same or "torch" not in sides:
        return True
    found = sides["torch"]()
    sides["tilec"]()
    wanted = found if isinstance(found, (tuple, list)) else [found]
    outputs = [given[param.name].float() for param in kernel.tensors if param.is_written]
    pairs = zip(outputs, wanted, strict=True)
    return all(float((got - each.float()).norm() / each.float().norm()) < _NEAR for got, each in pairs)


def _timed(sides: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """The least microseconds of a call, sides in turns."""
    least = dict.fromkeys(sides, float("inf"))
    counts = {name: max(1, int(_ROUND / _once(call))) for name, call in sides.items()}
    slow = sum(map(_once, sides.values())) > _LONG
    for _ in range(1 if slow else rounds):
        for name, call in sides.items():
            least[name] = min(least[name], *(_once(call) for _ in range(counts[name])))
    return least


def _once(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1e6


def _rate(dtype: str) -> float:
    """Operations of torch's product of 1024^3 in a microsecond."""
    a, b = (torch.randint(-8, 8, (1024, 1024)).to(getattr(torch, dtype)) for _ in range(2))
    product = (lambda: torch._int_mm(a, b)) if dtype == "int8" else (lambda: a @ b)
    return 2 * 1024**3 / _timed({"torch": product}, 5)["torch"]


def _ratio(row: dict[str, Any]) -> float | None:
    us = row.get("us", {})
    return (us["torch"] - us.get("torch_forward", 0.0)) / us["tilec"] if "torch" in us else None


def _text(row: dict[str, Any]) -> str:
    dims = " ".join(f"{dim}={size}" for dim, size in row["dims"].items())
    if "skipped" in row:
        return f"{row['kernel']:26s} {dims}: {row['skipped']}"
    ratio = _ratio(row)
    beside = "" if ratio is None else f", torch {row['us']['torch']:.0f}, ratio {ratio:.2f}"
    wrong = "" if row["right"] else " WRONG"
    return f"{row['kernel']:26s} {dims}: {row['us']['tilec']:.0f} us, rate {row['rate']:.2f}{beside}{wrong}"


def _summary(made: list[dict[str, Any]]) -> list[str]:
    """Geometric mean, tenth percentile and worst."""
    ratios = sorted(ratio for ratio in map(_ratio, made) if ratio is not None)
    rates = sorted(row["rate"] for row in made if row.get("rate"))
    return [_told("ratio to torch", ratios), _told("rate", rates)] if ratios and rates else []


def _told(what: str, found: list[float]) -> str:
    mean, tenth = statistics.geometric_mean(found), found[len(found) // 10]
    return (
        f"{what}: {len(found)} kernels, mean {mean:.3f}, tenth percentile {tenth:.3f}, worst {found[0]:.3f}"
    )


if __name__ == "__main__":
    sys.exit(main())
