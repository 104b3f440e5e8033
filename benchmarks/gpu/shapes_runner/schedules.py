"""Times every schedule of a kernel at random shapes, to which benchmarks/gpu/costs/schedules.py fits costs.

    python3 schedules.py [--seed N] [--shapes N] [--rows N N] [--columns N N] [--depth N N] [--models]
                         [--queries N N] [--within X] [--seconds N] [--kernel NAME]... [--json FILE]

Kernels take turns at shapes, each with the schedules of NAME__2 and so on, too; ``--columns`` and
``--depth`` are bounds of N (of rows, too) and K of products, ``--queries`` of what attention calls Sq,
which is that of its keys where queries are hidden from some, if left out. A schedule is left out at
shapes where it would compute more than `_MOST_WASTE` times the products asked for, or has both more than
`_MOST_TILES` tiles of less than `_TALL` rows on top of each other and more than `_MOST_WAVES` tiles for a
multiprocessor. With ``--within 1.5`` those with a cost in costs.json are left out where that is more than
1.5 times the least of all costs, too: more shapes in the same time.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from bench import distance, input_sets, runner, wanted
from draw import EVEN, Drawn, drawn_attention, family_of, log_uniform
from rows.row import Row
from timing import events
from work import row_of

from tilec.costs import cost
from tilec.portable.loader import LaunchError, load

HERE = Path(__file__).resolve().parent
_MOST_BYTES, _MOST_OPERATIONS, _MOST_ROWS = 1 << 30, 1 << 40, 16384
_MOST_WASTE, _MOST_TILES, _MOST_WAVES, _TALL = 4, 64, 4, 128
_SIZES = (1024, 1536, 2048, 2560, 3072, 3584, 4096, 5120, 6144, 7168, 8192, 11008, 12288, 14336, 16384, 28672)
#: Columns of rows, N and K of products, and elements of 16 bits of a vector.
_COLUMNS, _EXTENTS, _VECTOR = (257, 131072), (128, 32768), 8
#: What a call of a variant says whose guards it does not meet.
_OTHER_SHAPES = "TILEC_ERR_NO_VARIANT"
_BATCH_US, _MOST_CALLS, _REPLAYS, _DIGITS = 1000.0, 64, 3, 3


def main() -> int:
    """Times all and writes the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--shapes", type=int, default=100)
    parser.add_argument("--rows", type=int, nargs=2, default=(1, _MOST_ROWS), help="the fewest and the most")
    parser.add_argument("--columns", type=int, nargs=2, help="the least N of products and rows, and the most")
    parser.add_argument(
        "--depth", type=int, nargs=2, default=_EXTENTS, help="the least K of products, and the most"
    )
    parser.add_argument("--queries", type=int, nargs=2, help="the fewest and the most of attention")
    parser.add_argument("--models", action="store_true", help="N and K are sizes that models have")
    parser.add_argument("--within", type=float, help="leave out what costs so many times the least")
    parser.add_argument("--seconds", type=float, default=3600.0, help="no shape is begun after these")
    parser.add_argument("--kernel", action="append", help="the default is all of the library")
    parser.add_argument("--json", type=Path, default=Path("schedules.json"))
    options = parser.parse_args()
    library = load(HERE / "library.so")
    report: dict[str, Any] = {"machine": torch.cuda.get_device_name(), "seed": options.seed, "kernels": {}}
    report["units"] = torch.cuda.get_device_properties(0).multi_processor_count
    kernels: dict[str, list[Any]] = {}
    for name, kernel in library.kernels.items():
        kernels.setdefault(name.split("__")[0], []).append(kernel)
    kernels = {name: kernels[name] for name in options.kernel or kernels}
    report["kernels"] = {name: {"configs": _configs(parts), "times": []} for name, parts in kernels.items()}
    bounds = _Bounds(options.rows, options.columns, options.depth, options.models, options.queries)
    shapes = {
        name: _shapes(name, parts[0], random.Random(f"{options.seed} {name}"), bounds)
        for name, parts in kernels.items()
    }
    costs = _Costs(HERE / "costs.json", options.within) if options.within else None
    end = time.monotonic() + options.seconds
    for name in itertools.chain.from_iterable(itertools.repeat(list(kernels), options.shapes)):
        if time.monotonic() > end:
            break
        dims = next(shapes[name], None)
        if dims is None:
            continue
        drawn = Drawn(family_of(name), name, dims)
        report["kernels"][name]["times"].append(_timed(kernels[name], drawn, report["units"], costs))
    options.json.write_text(json.dumps(report))
    return 0


def _configs(parts: list[Any]) -> list[dict[str, Any]]:
    return [variant["config"] for kernel in parts for variant in kernel.metadata["variants"]]


class _Bounds(NamedTuple):
    """The least and the most of M, N, K and Sq; with ``models`` N and K are sizes that models have."""

    rows: tuple[int, int]
    columns: tuple[int, int] | None
    depth: tuple[int, int]
    models: bool
    queries: tuple[int, int] | None


def _shapes(name: str, kernel: Any, source: random.Random, bounds: _Bounds) -> Iterator[dict[str, int]]:
    """Shapes that the guards of the schedules admit."""
    guards = kernel.metadata["variants"][0]["guards"]
    if family_of(name) == "attention":
        return _attention_shapes(source, "causal" in name, guards["D"], bounds.queries)
    if family_of(name) == "rows":
        return _row_shapes(source, bounds, EVEN in name)
    return _product_shapes(source, guards, bounds)


def _attention_shapes(
    source: random.Random, causal: bool, guard: dict[str, Any], queries: tuple[int, int] | None
) -> Iterator[dict[str, int]]:
    """Heads of a size that the guard admits, side by side; so many queries, where that is asked for."""
    step = guard.get("div", 1)
    sizes = (
        [guard["eq"]] if "eq" in guard else range(guard["min"] // step * step + step, guard["max"] + 1, step)
    )
    for each in drawn_attention(source):
        size = source.choice(sizes)
        dims = {**each.dims, "D": size}
        if queries is not None:
            dims["Sq"] = log_uniform(source, *queries)
        for name, heads, rows in (("q", "H", "Sq"), ("kv", "Hkv", "Sk")):
            dims[f"{name}_row"] = dims[heads] * size
            dims[f"{name}_batch"] = dims[rows] * dims[f"{name}_row"]
        operations = 4 * dims["B"] * dims["H"] * dims["Sq"] * dims["Sk"] * size
        fits = dims["Sq"] <= dims["Sk"] or not causal
        if ("causal" in each.kernel) == causal and fits and operations <= _MOST_OPERATIONS:
            yield dims


def _row_shapes(source: random.Random, bounds: _Bounds, are_even: bool) -> Iterator[dict[str, int]]:
    """Rows that are whole vectors, or that begin anywhere."""
    step = _VECTOR if are_even else 1
    while True:
        m, n = log_uniform(source, *bounds.rows), log_uniform(source, *(bounds.columns or _COLUMNS), step)
        if (n % _VECTOR == 0) == are_even and 8 * m * n <= _MOST_BYTES:
            yield {"M": m, "N": n}


def _product_shapes(
    source: random.Random, guards: dict[str, Any], bounds: _Bounds
) -> Iterator[dict[str, int]]:
    """Within the bounds; none where the guards admit no such rows."""
    rows = guards.get("M", {})
    ends = max(rows.get("min", 1), bounds.rows[0]), min(rows.get("max", _MOST_ROWS), bounds.rows[1])
    if ends[0] > ends[1]:
        return
    across, along = (guards.get(name, {}).get("div", 1) for name in ("N", "K"))
    while True:
        m = log_uniform(source, *ends)
        n, k = (
            log_uniform(source, *(bounds.columns or _EXTENTS), across),
            log_uniform(source, *bounds.depth, along),
        )
        if bounds.models:
            n, k = source.choice(_SIZES), source.choice(_SIZES)
        if 2 * (m * k + n * k + 2 * m * n) <= _MOST_BYTES and 2 * m * n * k <= _MOST_OPERATIONS:
            yield {"M": m, "N": n, "K": k}


class _Costs:
    """Costs of schedules by the numbers of their kernel, of what may take ``within`` times the least."""

    def __init__(self, path: Path, within: float) -> None:
        self._within = within
        self._texts: dict[str, dict[str, str]] = json.loads(path.read_text())

    def dear(self, drawn: Drawn, units: int) -> set[int]:
        """The numbers of those that cost more at a shape."""
        texts = self._texts.get(drawn.kernel, {})
        costs = {int(number): cost(text, drawn.dims, units) for number, text in texts.items()}
        return {number for number, each in costs.items() if each > self._within * min(costs.values())}


def _timed(parts: list[Any], drawn: Drawn, units: int, costs: _Costs | None) -> dict[str, Any]:
    """Microseconds by the number of the schedule, and those of the first peer; ``wrong``: whose results
    differ. ``parts``: the kernel, and those with the rest of its schedules."""
    dear = costs.dear(drawn, units) if costs else set()
    row = replace(row_of(drawn), sets=0)
    sets = input_sets(row)
    expected = wanted(row, sets[0])[0]
    output = row.outputs[0]
    found: dict[str, Any] = {
        "dims": drawn.dims,
        "us": {},
        "wrong": [],
        "peer": _peer(row, sets),
    }
    schedules = [(kernel, variant) for kernel in parts for variant in kernel.metadata["variants"]]
    for number, (kernel, variant) in enumerate(schedules):
        if number in dear:
            continue
        if "bM" in variant["config"] and not _is_worth_it(drawn.dims, variant["config"], units):
            continue
        run = runner(kernel, row, variant["id"])
        sets[0][output].fill_(float("nan"))
        try:
            run(sets[0])
        except LaunchError as problem:
            if problem.name != _OTHER_SHAPES:
                found.setdefault("refused", {})[number] = str(problem)
            continue
        if not distance(sets[0][output], expected) < row.rtol:
            found["wrong"].append(number)
        found["us"][number] = round(_time(run, sets), _DIGITS)
    best = min(found["us"].values())
    print(drawn.dims, f"best {best:.1f}, peer {found['peer']}, wrong {found['wrong']}", flush=True)
    return found


def _peer(row: Row, sets: list[dict[str, Any]]) -> float | None:
    """Microseconds of the first peer; None where it cannot do the work."""
    peer = next(iter(row.peers.values()))
    try:
        return _time(lambda t: peer(**t), sets)
    except RuntimeError:
        return None


def _is_worth_it(dims: dict[str, int], config: dict[str, Any], units: int) -> bool:
    """Whether tiles may be good for so many rows; none has less than 16. ``units``: multiprocessors."""
    height = config["bM"]
    rows, columns = dims.get("M", dims.get("Sq")), dims.get("N", 1)
    tiles = -(-rows // height)
    few = "Sq" in dims or tiles <= _MOST_TILES or tiles * -(-columns // config["bN"]) <= _MOST_WAVES * units
    return tiles * height <= _MOST_WASTE * max(rows, 16) and (few or height >= _TALL)


def _time(call: Callable[[dict[str, Any]], Any], sets: list[dict[str, Any]]) -> float:
    """Microseconds of one call, the least of replays of a graph that goes through the sets."""
    for tensors in sets[:2]:
        call(tensors)
    one = events(lambda: call(sets[0]))
    calls = max(2, min(_MOST_CALLS, int(_BATCH_US / max(one, 1.0))))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for number in range(calls):
            call(sets[number % len(sets)])
    graph.replay()
    return min(events(graph.replay) for _ in range(_REPLAYS)) / calls


if __name__ == "__main__":
    sys.exit(main())
