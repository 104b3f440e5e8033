"""Times the variants that matrix kernels choose among, for benchmarks/gpu/costs/balance.py.

    python3 variants.py [--random COUNT [--rows N N] [--columns N N] [--depth N N] [--most N] --seed N]
                        [--within X] [--kernel NAME]... [--json FILE]

At 58 numbers of rows up to 256 of eight sizes of weights, or, with ``--random``, at so many shapes each of
up to 16, 64, 128 and 1024 rows, or of those asked for, drawn by the seed. The variants of the list that
serves a shape, and of those for other rows that admit it, are checked beside torch and timed, but for those
with a cost of more than ``--within`` times the least.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from bench import distance, input_sets, runner, wanted
from draw import Drawn, log_uniform
from sweep import BY_ROW, KERNELS
from timing import events
from work import row_of

from tilec.costs import cost
from tilec.portable.loader import LaunchError, load

HERE = Path(__file__).resolve().parent
#: N and K, and rows about the ends of tiles.
_SIZES = (
    *((4096, 4096), (6144, 6144), (14336, 4096), (8192, 8192)),
    *((4096, 14336), (5120, 5120), (2048, 7168), (11008, 4096)),
)
_ENDS = (16, 32, 48, 64, 96, 128, 144, 152, 160, 184, 192, 224)
_ROWS = sorted(
    {*(1, 2, 4, 5, 7, 12, 15, 47, 50, 59, 60, 66, 126, 254)}
    | {*_ENDS, *(end + 1 for end in _ENDS), *range(8, 257, 8)}
)
_RANDOM_ROWS = ((1, 16), (17, 64), (65, 128), (129, 1024))
_DRAWN, _WEIGHTS = (256, 20000), 120_000_000
#: What of a config says how bytes are kept, and not which schedule it is.
_ASIDE = ("pdl", "evict_first", "evict_last", "constant")
_BATCH_US, _CALLS, _REPLAYS = 700.0, 48, 4


def main() -> int:
    """Times all and writes the JSON after each kernel."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--random", type=int, help="so many shapes of each number of rows")
    parser.add_argument("--rows", type=int, nargs=2, help="the fewest and the most of random shapes")
    parser.add_argument("--columns", type=int, nargs=2, default=_DRAWN, help="the least N, and the most")
    parser.add_argument("--depth", type=int, nargs=2, default=_DRAWN, help="the least K, and the most")
    parser.add_argument("--most", type=int, default=_WEIGHTS, help="the most weights of random shapes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--within", type=float, default=1.3, help="leave out what costs so many times the least"
    )
    parser.add_argument("--kernel", action="append", help="the default is every matrix kernel")
    parser.add_argument("--json", type=Path, default=Path("variants.json"))
    options = parser.parse_args()
    library = load(HERE / json.loads((HERE / "libraries.json").read_text())["library"])
    units = torch.cuda.get_device_properties(0).multi_processor_count
    report: dict[str, Any] = {"machine": torch.cuda.get_device_name(), "units": units, "kernels": {}}
    for name in options.kernel or KERNELS:
        timer = _Timer(library.kernels[name], name, units, options.within)
        groups = (
            _swept() if options.random is None else _drawn(random.Random(f"{options.seed} {name}"), options)
        )
        times = [each for weights, rows in groups for each in timer.times(weights, rows)]
        report["kernels"][name] = {"configs": timer.configs, "times": times}
        print(
            f"{name}: {len(times)} shapes, wrong at {sum(bool(each['wrong']) for each in times)}", flush=True
        )
        options.json.write_text(json.dumps(report))
    return 0


def _swept() -> Iterator[tuple[tuple[int, int], list[int]]]:
    return ((weights, _ROWS) for weights in _SIZES)


def _drawn(source: random.Random, options: argparse.Namespace) -> Iterator[tuple[tuple[int, int], list[int]]]:
    """Weights of one number of rows each, in vectors of 16 bytes and groups of 128 along K."""
    for rows in [options.rows] if options.rows else _RANDOM_ROWS:
        found = 0
        while found < options.random:
            n, k = log_uniform(source, *options.columns, 16), log_uniform(source, *options.depth, 128)
            if n * k <= options.most:
                found += 1
                yield (n, k), [log_uniform(source, *rows)]


class _Timer:
    """The variants of a kernel."""

    def __init__(self, kernel: Any, name: str, units: int, within: float) -> None:
        self._kernel, self._name, self._units, self._within = kernel, name, units, within
        self._variants = kernel.metadata["variants"]
        self.configs = [
            {name: value for name, value in variant["config"].items() if name not in _ASIDE}
            for variant in self._variants
        ]

    def times(self, weights: tuple[int, int], rows: list[int]) -> Iterator[dict[str, Any]]:
        """Microseconds by the number of the config, for the first rows of the same tensors."""
        most = row_of(Drawn(KERNELS[self._name], self._name, _dims(max(rows), weights)))
        sets = input_sets(most)
        (expected,) = wanted(most, sets[0])
        for count in rows:
            mine = [{key: t[:count] if key in BY_ROW else t for key, t in each.items()} for each in sets]
            dims = _dims(count, weights)
            row = replace(most, dims={**most.dims, **dims})
            found: dict[str, Any] = {"dims": dims, "us": {}, "wrong": []}
            for number in self._worth_it(dims):
                call = runner(self._kernel, row, self._variants[number]["id"])
                try:
                    call(mine[0])
                except LaunchError:
                    continue
                if not distance(mine[0][most.outputs[0]], expected[:count]) < most.rtol:
                    found["wrong"].append(number)
                found["us"][number] = _time(call, mine)
            yield found

    def _worth_it(self, dims: Mapping[str, int]) -> list[int]:
        """The numbers of variants that admit a shape and may be its best."""
        admitted = [n for n, variant in enumerate(self._variants) if _admits(variant["guards"], dims)]
        guards = [_but_rows(self._variants[number]) for number in admitted]
        costs = {
            number: cost(self._variants[number]["cost"] or "1", dims, self._units)
            for number, others in zip(admitted, guards, strict=True)
            if others == guards[0]
        }
        return [number for number, each in costs.items() if each <= self._within * min(costs.values())]


def _dims(rows: int, weights: tuple[int, int]) -> dict[str, int]:
    return {"M": rows, "N": weights[0], "K": weights[1]}


def _but_rows(variant: Mapping[str, Any]) -> dict[str, Any]:
    """The guards of other dims than the number of rows: lists for other rows have the same."""
    return {dim: guard for dim, guard in variant["guards"].items() if dim != "M"}


def _admits(guards: Mapping[str, Mapping[str, Any]], dims: Mapping[str, int]) -> bool:
    bound = ((guard, dims[dim]) for dim, guard in guards.items() if dim in dims)
    return all(
        guard.get("min", 1) <= size <= guard.get("max", size)
        and size % guard.get("div", 1) == 0
        and guard.get("eq", size) == size
        for guard, size in bound
    )


def _time(call: Callable[[dict[str, Any]], None], sets: list[dict[str, Any]]) -> float:
    """Of one call, the second least of replays of a graph that goes through all sets."""
    one = events(lambda: call(sets[0]))
    calls = max(len(sets), 4, min(_CALLS, int(_BATCH_US / max(one, 1.0))))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for number in range(calls):
            call(sets[number % len(sets)])
    graph.replay()
    return round(sorted(events(graph.replay) for _ in range(_REPLAYS))[1] / calls, 3)


if __name__ == "__main__":
    sys.exit(main())
