"""Times the idioms of this folder on the GPU of this machine, beside their plain forms and torch.

    python3 run.py [--kernel GLOB]... [--json FILE]

Each kernel, its plain form and torch take turns in one run (timing.py). The JSON is written after every
kernel; the table of docs/performance/gpu-idioms.md is printed at the end: a kernel, the roads of its
statements, microseconds, and its rate over those of its floor, of its plain form and of torch (more is
better). Floors go by rates measured first: that of a plain product for each type of operands, and that of a
copy. Exit code 1: a kernel failed, or is not what torch gives, or gives something else when it runs once
more.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
import torch
from idiom_peers import PEERS
from timing import Contestant, cool

from tilec.portable.loader import Library, load

HERE = Path(__file__).resolve().parent
_L2_BYTES = 160 << 20  # inputs in turn hold more than the cache
_MOST_SETS = 16
COPY = "copied"  # the ceiling of bytes
_NEAR = 2e-2  # norm of the difference over the norm
_AGAIN = 1e-3  # the same, of two runs: what the order of atomics changes
Tensors = dict[str, Any]


class Bench:
    """The kernels of the folder, each at its dims, by label."""

    def __init__(self, runs: dict[str, Any]) -> None:
        self._runs = runs
        self._integers = np.load(HERE / "integers.npz")
        self._libraries: dict[str, Library] = {}

    def inputs(self, label: str) -> list[Tensors]:
        """Sets of arguments of a kernel on the GPU."""
        params = self._runs[label]["params"]
        one = {param["name"]: self._made(param) for param in params}
        size = sum(value.numel() * value.element_size() for value in one.values() if _is_tensor(value))
        count = max(1, min(_MOST_SETS, -(-_L2_BYTES // size)))
        return [one, *({p["name"]: self._made(p) for p in params} for _ in range(count - 1))]

    def _made(self, param: dict[str, Any]) -> Any:
        if "scalar" in param:
            return param["scalar"]
        dtype = getattr(torch, param["dtype"])
        if "integers" in param:
            return torch.from_numpy(self._integers[param["integers"]]).cuda()
        if "range" in param:
            return torch.randint(*param["range"], param["shape"], device="cuda").to(dtype)
        values = torch.randn(param["shape"], device="cuda") * param["std"] + param["mean"]
        return values.to(dtype)

    def call(self, label: str) -> Callable[[Tensors], None]:
        """Runs a kernel on a set of its arguments."""
        entry = self._runs[label]
        if entry["library"] not in self._libraries:
            self._libraries[entry["library"]] = load(HERE / entry["library"])
        kernel = self._libraries[entry["library"]].kernels[entry["kernel"]]
        free = {dim: size for dim, size in entry["dims"].items() if dim in kernel._binds}
        return lambda tensors: kernel(**free, **tensors)

    def contestant(self, name: str, label: str, sets: list[Tensors]) -> Contestant:
        """A kernel that is timed on these sets under ``name``."""
        run = self.call(label)
        return Contestant(name, lambda i: run(sets[i]), len(sets))

    def outputs(self, label: str) -> list[str]:
        """The tensors that a kernel writes."""
        return [param["name"] for param in self._runs[label]["params"] if param.get("written")]


class Floors:
    """The least times that kernels can take, by the rates of plain products and of a copy."""

    def __init__(self, bench: Bench, content: dict[str, Any], dtypes: set[str]) -> None:
        self._bench, self._runs, self._ceilings = bench, content["runs"], content["ceilings"]
        self._flops = {dtype: self._rate(dtype, "flops") for dtype in sorted(dtypes)}
        self._bytes = self._rate(COPY, "bytes")

    def _rate(self, ceiling: str, work: str) -> float:
        """Of a kernel, per microsecond."""
        run = self._runs[self._ceilings[ceiling]]
        sets = self._bench.inputs(self._ceilings[ceiling])
        times = cool([self._bench.contestant(ceiling, self._ceilings[ceiling], sets)])
        done = run["bytes"] if work == "bytes" else sum(run["products"].values())
        rate = float(done / times[ceiling]["us"])
        print(f"{run['kernel']:24s} {rate * 1e-6:9.2f} T{'B/s' if work == 'bytes' else 'FLOP/s'}", flush=True)
        return rate

    def of(self, row: dict[str, Any]) -> dict[str, Any]:
        """What bounds a kernel from below, in microseconds, and its rate over that of the bound."""
        products = sum(flops / self._flops[dtype] for dtype, flops in row["products"].items())
        floor, bound = max((products, "products"), (row["bytes"] / self._bytes, "bytes"))
        return {"floor": floor, "bound": bound, "to_floor": floor / row["us"] if "us" in row else None}


def main() -> int:
    """Times the rows asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernel", action="append", metavar="GLOB", help="these kernels alone; repeatable")
    parser.add_argument("--json", type=Path, default=Path("idioms.json"))
    options = parser.parse_args()
    content = json.loads((HERE / "rows.json").read_text())
    runs = content["runs"]
    bench, made = Bench(runs), []
    chosen = [
        row
        for row in content["rows"]
        if any(fnmatch(runs[row["run"]]["kernel"], glob) for glob in options.kernel or "*")
    ]
    floors = Floors(bench, content, {dtype for row in chosen for dtype in runs[row["run"]]["products"]})
    for row in chosen:
        run = runs[row["run"]]
        plain = {"plain_flops": runs[row["plain"]]["flops"]} if row["plain"] else {}
        made.append({**row, **run, **plain})
        made[-1] |= _measured(bench, made[-1])
        made[-1] |= floors.of(made[-1])
        options.json.write_text(json.dumps(made, indent=1))
        print(_text(made[-1]), flush=True)
    print("\n".join(table(made)))
    return int(any("failed" in row or not row["right"] for row in made))


def _measured(bench: Bench, row: dict[str, Any]) -> dict[str, Any]:
    """Times, and rates over those of the others; ``failed``: why there are none."""
    try:
        return _timed(bench, row)
    except (RuntimeError, ValueError, TypeError) as problem:
        return {"failed": " ".join(str(problem).split())[:300]}
    finally:
        torch.cuda.empty_cache()


def _timed(bench: Bench, row: dict[str, Any]) -> dict[str, Any]:
    sets = bench.inputs(row["run"])
    contestants = [bench.contestant("tilec", row["run"], sets)]
    if row["plain"]:
        contestants.append(bench.contestant("plain", row["plain"], bench.inputs(row["plain"])))
    peers, absent = _peers(row, sets)
    contestants += [
        Contestant(name, lambda i, calls=calls: calls[i](), len(sets)) for name, calls in peers.items()
    ]
    again = _again(bench, row, sets[0])
    error = _error(bench, row, sets[0], peers["torch"][0]) if row["same"] and "torch" in peers else None
    times = cool(contestants)
    us = {name: time["us"] for name, time in times.items()}
    torch_us = us["torch"] - us.get("torch_forward", 0.0) if "torch" in us else None
    ours = row["flops"] / us["tilec"] if row["flops"] else None
    return {
        "times": times,
        "us": us["tilec"],
        "tflops": ours and ours * 1e-6,
        "to_plain": ours and "plain" in us and ours / (row["plain_flops"] / us["plain"]),
        "to_torch": torch_us and torch_us / us["tilec"],
        "error": error,
        "again": again,
        "right": again < _AGAIN and (error is None or error < _NEAR),
        "absent": absent,
    }


def _peers(row: dict[str, Any], sets: list[Tensors]) -> tuple[dict[str, list[Callable[[], Any]]], str]:
    """Calls by name, one for each set, and why there are none."""
    if not row["torch"]:
        return {}, ""
    try:
        made = [PEERS[row["torch"]](tensors) for tensors in sets]
        for call in made[0].values():
            call()
    except (RuntimeError, TypeError, AttributeError, KeyError) as problem:
        return {}, " ".join(str(problem).split())[:300]
    return {name: [calls[name] for calls in made] for name in made[0]}, ""


def _error(bench: Bench, row: dict[str, Any], tensors: Tensors, peer: Callable[[], Any]) -> float:
    """The largest distance of an output from what torch gives."""
    found = peer()
    wanted = [each.float() for each in (found if isinstance(found, (tuple, list)) else [found])]
    bench.call(row["run"])(tensors)
    pairs = zip(bench.outputs(row["run"]), wanted, strict=True)
    return max(float((tensors[name].float() - each).norm() / each.norm()) for name, each in pairs)


def _again(bench: Bench, row: dict[str, Any], tensors: Tensors) -> float:
    """The largest distance of an output from what the kernel gives when it runs once more."""
    names, run = bench.outputs(row["run"]), bench.call(row["run"])
    before = {name: tensors[name].clone() for name in names}
    results = []
    for _ in range(2):
        for name, value in before.items():
            tensors[name].copy_(value)
        run(tensors)
        results.append({name: tensors[name].clone() for name in names})
    for name, value in before.items():
        tensors[name].copy_(value)
    return max((_distance(*(result[name].float() for result in results)) for name in names), default=0.0)


def _distance(one: torch.Tensor, other: torch.Tensor) -> float:
    """The norm of a difference over the norm; infinite where one alone has a value that is no number."""
    known = torch.isfinite(one)
    if not bool((known == torch.isfinite(other)).all()):
        return float("inf")
    norm = float(one[known].norm())
    return float((one[known] - other[known]).norm()) / norm if norm else float(other[known].norm())


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _text(row: dict[str, Any]) -> str:
    """One line for people."""
    if "failed" in row:
        return f"{row['kernel']:24s} FAILED {row['failed']}"
    ratios = (
        f"{name} {row[key]:.3f}"
        for name, key in (("the floor", "to_floor"), ("plain", "to_plain"), ("torch", "to_torch"))
        if row[key]
    )
    error = f", error {row['error']:.1e}" if row["error"] is not None else ""
    error += f", TWO RUNS DIFFER BY {row['again']:.1e}" if row["again"] >= _AGAIN else ""
    rate = f"{row['tflops']:6.1f} TFLOP/s" if row["tflops"] else ""
    return f"{row['kernel']:24s} {row['us']:9.1f} us {rate}, over " + ", ".join(ratios) + error


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Markdown."""
    lines = [
        "| kernel | roads of its statements | us | floor, us | over it | over the plain form | over torch |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        kinds = Counter(road["kind"] for road in row["roads"])
        roads = ", ".join(f"{kind} x {count}" if count > 1 else kind for kind, count in kinds.items())
        keys = ("to_floor", "to_plain", "to_torch")
        us = f"{row['us']:.1f}" if "us" in row else "failed"
        cells = [us, f"{row['floor']:.1f} ({row['bound']})"]
        cells += [f"{row[key]:.3f}" if row.get(key) else "-" for key in keys]
        lines.append(f"| {row['kernel']} | {roads} | " + " | ".join(cells) + " |")
    return lines


if __name__ == "__main__":
    sys.exit(main())
