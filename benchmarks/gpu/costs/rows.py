"""Chooses schedules of rows for manifests/llm.rows.toml, with costs fitted to times.

    python benchmarks/gpu/costs/schedules.py --kernel "softmax_*" --kernel "*norm*"    # here
    python3 schedules.py --shapes 400 --rows 1 65536 --json times.json                 # where the GPU is
    python benchmarks/gpu/costs/rows.py [times.json...] [--write]                      # here

Rows are held by a block or a cluster, whose schedules differ by how many columns these hold: each such number
has the few that pay, fitted to the shapes that have more columns than the next smaller number. Without files
they are fitted to measured/rows_h200.json, times on an H200 of 26 November 2026.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tomlkit
from balanced import balanced, scaled
from terms import MANIFESTS, MEASURED, Sum, asked

from tilec.build.schedules.fit import Times, few
from tilec.costs import cost
from tilec.manifest.guards import parse_guard

LISTS = MANIFESTS / "llm.rows.toml"
TIMES = MEASURED / "rows_h200.json"
#: Which kernel of schedules.toml times a list; softmax of up to 1024 columns has lists of its own.
TIMED_AS = {
    f"{kernel}{bits}{any_}": f"{kernel}{'' if any_ else '_even'}{dtype}"
    for kernel, bits, dtype in (
        ("softmax", "_32", "_float32"),
        ("softmax", "_16", "_float16"),
        ("rmsnorm", "_32", "_float32"),
        ("rmsnorm", "_16", "_bfloat16"),
        ("rmsnorm_residual", "_32", "_float32"),
        ("rmsnorm_residual", "_16", "_bfloat16"),
        ("layernorm", "", ""),
    )
    for any_ in ("", "_any")
}
#: Columns of rows that a block or a cluster holds; `SHORT`: those of a list of its own for softmax; `BESIDE`:
#: those that whole vectors have of no row.
HELD = (
    *(256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384),
    *(20480, 24576, 32768, 49152, 65536, 98304, 131072),
)
SHORT = 1024
BESIDE = 8
#: Columns of which reading a part of each row again may be worth it.
LONG = 12288
#: At most so many schedules of rows of as many columns, each of which lowers the mean loss by so much.
_MOST, _GAIN = 3, 0.015
_MILLION = "M * N * 1e-06"


@dataclass(frozen=True)
class Terms(Sum):
    """What the cost of a schedule is made of."""

    config: Mapping[str, Any]

    def terms(self, held: int) -> tuple[str, ...]:
        """The texts whose factors are fitted, for so many blocks on a multiprocessor."""
        blocks = _blocks(self.config)
        waves = f"waves({blocks})" if held == 1 else f"waves({blocks} / {held})"
        return ("1", waves, f"rounds({blocks})", _MILLION)


def _blocks(config: Mapping[str, Any]) -> str:
    """All of a call."""
    rows, parts = config["rows"], config["parts"] * config.get("split_row", 1)
    tiles = "M" if rows == 1 else f"ceil(M / {rows})"
    return tiles if parts == 1 else f"{tiles} * {parts}"


def main() -> None:
    """Prints a line for each list."""
    options = asked(__doc__.splitlines()[0], TIMED_AS, LISTS, TIMES)
    document = tomlkit.parse(LISTS.read_text())
    files = [json.loads(path.read_text()) for path in options.times]
    units = int(files[0]["units"])
    for name in options.lists or TIMED_AS:
        told = Told(files, TIMED_AS[name])
        made = [entry for held in HELD[1:] for entry in _chosen(told, held, units)]
        print(f"{name}: {len(made)} schedules, {_told(made, told, units)}")
        for listed, entries in _lists(name, made):
            document.pop(listed, None)
            document[listed] = _tables(entries)
    if options.write:
        LISTS.write_text(re.sub(r"\n{3,}", "\n\n", tomlkit.dumps(document)))


class Told:
    """All times of a kernel: its configs, each once, and by their numbers what they take at each shape."""

    def __init__(self, files: Sequence[Mapping[str, Any]], kernel: str) -> None:
        self.configs: list[dict[str, Any]] = []
        self.times: list[Times] = []
        for file in files:
            found = file["kernels"].get(kernel, {"configs": [], "times": []})
            numbers = [self._number(config) for config in found["configs"]]
            for each in found["times"]:
                told, wrong = each["us"].items(), each.get("wrong", ())
                us = {numbers[int(old)]: float(time) for old, time in told if int(old) not in wrong}
                self.times.append(Times(each["dims"], us))

    def _number(self, config: dict[str, Any]) -> int:
        if config not in self.configs:
            self.configs.append(config)
        return self.configs.index(config)


def _columns(config: Mapping[str, Any]) -> int:
    """What a block or a cluster holds of a row; 0 where rows may be longer."""
    return int(config["bN"] * config["parts"]) if config.get("one_chunk") else 0


def _serves(config: Mapping[str, Any], held: int) -> bool:
    """Whether a schedule is for rows of which so many columns are held. Those that hold less read the others
    again."""
    columns = _columns(config)
    return columns == held or (not columns and held >= LONG)


def _from(held: int) -> int:
    """The least columns of rows that so many are held of."""
    return HELD[HELD.index(held) - 1] + 1


def _chosen(told: Told, held: int, units: int) -> Iterator[dict[str, Any]]:
    """Those worth having for rows of which so many columns are held, with costs."""
    times = [each for each in told.times if _from(held) <= each.dims["N"] <= held]
    of = {n: Terms(config) for n, config in enumerate(told.configs) if _serves(config, held)}
    within = [Times(each.dims, {n: us for n, us in each.us.items() if n in of}) for each in times]
    costs = few(of, within, within, units, _MOST, _GAIN) or {_best_of(of, within): "1"}
    numbers = list(costs)
    texts = list(costs.values())
    own = [
        Times(each.dims, {numbers.index(n): us for n, us in each.us.items() if n in costs}) for each in within
    ]
    factors = balanced(texts, own, units)
    for number, text, factor in zip(numbers, texts, factors, strict=True):
        config = told.configs[number]
        yield _entry(config, _from(held), _most(config, held), scaled(text, factor))
    if all(_most(told.configs[number], held) < held for number in numbers):
        others = [number for number, each in of.items() if _most(each.config, held) == held]
        config = told.configs[_best_of(others, within)]
        yield _entry(config, held - BESIDE + 1, held, "1")


def _entry(config: Mapping[str, Any], least: int, most: int, text: str) -> dict[str, Any]:
    return {"config": _own(config), "dims": {"N": f"{least}..{most}"}, "cost": text}


def _most(config: Mapping[str, Any], held: int) -> int:
    """The most columns of rows that a schedule is for, of those of which ``held`` are held."""
    return held - BESIDE if config.get("whole_vectors") else held


def _best_of(numbers: Iterable[int], times: Sequence[Times]) -> int:
    """The schedule that takes the least in the mean, of so few shapes that no cost is fitted to them."""

    def loss(number: int) -> float:
        told = [math.log(each.us[number] / each.best) for each in times if number in each.us]
        return sum(told) / len(told) if told else math.inf

    return min(numbers, key=loss)


def _told(made: Sequence[Mapping[str, Any]], told: Told, units: int) -> str:
    """What the choice takes over the best of all that was timed."""
    losses = []
    for each in told.times:
        served = [entry for entry in made if parse_guard(entry["dims"]["N"]).admits(each.dims["N"])]
        chosen = min(served, key=lambda entry: cost(entry["cost"], each.dims, units))
        number = next(n for n, config in enumerate(told.configs) if _own(config) == chosen["config"])
        if number in each.us:
            losses.append(math.log(each.us[number] / each.best))
    mean = 100 * sum(losses) / len(losses)
    return f"{mean:.2f} % over the best at {len(losses)} shapes, {max(losses):.0%} at most"


def _own(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config without what its kernel gives all of them."""
    return {name: value for name, value in config.items() if name != "pdl"}


def _lists(name: str, made: Sequence[dict[str, Any]]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The lists of a kernel by their names. That of short rows has no others: its last schedule admits all
    calls, at a cost that leaves fewer columns to those before it."""
    if not name.startswith("softmax"):
        yield name, list(made)
        return
    short = [entry for entry in made if 0 < _columns(entry["config"]) <= SHORT]
    *others, last = short
    open_cost = f"{last['cost']} + max(0, {_from(SHORT)} - N) * 1e9"
    yield name.replace("softmax", "softmax_short"), [*others, {"config": last["config"], "cost": open_cost}]
    yield name, [entry for entry in made if entry not in short]


def _tables(entries: Sequence[Mapping[str, Any]]) -> Any:
    """A list of TOML tables."""
    made = tomlkit.aot()
    for entry in entries:
        table = tomlkit.table()
        for name, value in entry.items():
            table.add(name, _inline(value) if isinstance(value, dict) else value)
        made.append(table)
    return made


def _inline(value: Mapping[str, Any]) -> Any:
    """As people write it."""
    made = ", ".join(f"{name} = {json.dumps(each)}" for name, each in value.items())
    return tomlkit.parse(f"made = {{ {made} }}")["made"]


if __name__ == "__main__":
    main()
