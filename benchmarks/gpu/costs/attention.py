"""Fits costs of attention in manifests/llm.schedules.toml to times, those of few queries too.

    python benchmarks/gpu/costs/schedules.py --kernel "attention_dense_*"           # here
    python3 schedules.py --queries 1 64 --json times.json                           # where the GPU is
    python benchmarks/gpu/costs/attention.py [times.json...] [--write]              # here

Schedules that join heads and split keys have two launches, of which `tilec fit` tells no cost; what theirs
are made of stands here. All schedules of a list are fitted together, and balanced (balanced.py). Without
files they are fitted to measured/attention_h200.json, times on an H200 of 26 November 2026: 160 to 330
shapes for each list. 50 have any number of queries (seed 1021), 50 of heads of more than 64 have 2 to 16
(seed 1013), the others were drawn before this script was: three in four of them have 1 to 64 or, one in
seven, 65 to 1024.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tomlkit
from balanced import balanced, mean_loss, scaled
from terms import MANIFESTS, MEASURED, Sum, asked

from tilec.build.schedules.fit import Times, fit
from tilec.manifest.guards import parse_guard

LISTS = MANIFESTS / "llm.schedules.toml"
TIMES = MEASURED / "attention_h200.json"
#: Which kernel of schedules.toml times a list.
TIMED_AS = {
    f"attention_{causal}{heads}": f"attention_dense_{causal}{timed}_float16"
    for causal in ("", "causal_")
    for heads, timed in (
        ("64", "d64"),
        ("128", "d128"),
        ("256", "d256"),
        ("rest_64", "r64"),
        ("rest_128", "r128"),
    )
}
_MOST_PARTS = 32  # of keys: `attention_blocks.MOST_PARTS`
_BYTES = "(B * Sq * H * D * 4e-06 + B * Sk * Hkv * D * 4e-06)"


@dataclass(frozen=True)
class Terms(Sum):
    """What the cost of a schedule is made of."""

    config: Mapping[str, int]
    causal: bool

    def terms(self, held: int) -> tuple[str, ...]:
        """The texts whose factors are fitted, for so many blocks on a multiprocessor."""
        tiles, trips = self._tiles, f"ceil({self._reach} / {self.config['bN']})"
        if self.config.get("blocks", 0) > 1:
            longest = f"ceil(Sk / {_MOST_PARTS * self.config['bN']})"
            return ("1", f"rounds({tiles}) * {trips}", longest, "rounds(B * Sq * H)", _BYTES)
        waves = f"waves({tiles})" if held == 1 else f"waves({tiles} / {held})"
        return ("1", waves, f"{waves} * {trips}", f"rounds({tiles})", f"rounds({tiles}) * {trips}", _BYTES)

    @property
    def _tiles(self) -> str:
        """All of a call: of the rows of a key head where its heads stand in one tile, else of each head."""
        if "blocks" in self.config:
            return f"ceil(Sq * ceil(H / max(1, Hkv)) / {self.config['bM']}) * Hkv * B"
        return f"ceil(Sq / {self.config['bM']}) * H * B"

    @property
    def _reach(self) -> str:
        """The keys that a tile meets: with few queries all, else, where they are hidden, those of the tile in
        the middle."""
        if not self.causal or "blocks" in self.config:
            return "Sk"
        rows = self.config["bM"]
        return f"max(min(Sk, ceil((ceil(Sq / {rows}) - 1) / 2) * {rows} + {rows} + Sk - Sq), 0)"


def main() -> None:
    """Prints a line for each list."""
    options = asked(__doc__.splitlines()[0], TIMED_AS, LISTS, TIMES)
    document = tomlkit.parse(LISTS.read_text())
    files = [json.loads(path.read_text()) for path in options.times]
    for name in options.lists or TIMED_AS:
        _fit(name, document[name], files)
    if options.write:
        LISTS.write_text(tomlkit.dumps(document))


def _fit(name: str, schedules: Any, files: Sequence[Mapping[str, Any]]) -> None:
    """Gives each schedule of a list its cost, and says how the choice changes."""
    times, units = list(_times(TIMED_AS[name], schedules, files)), int(files[0]["units"])
    if not times:
        print(f"{name}: not timed")
        return
    made = [Terms(dict(each["config"]), "causal" in name) for each in schedules]
    fits = [fit(each, number, times, units) for number, each in enumerate(made)]
    before = [str(each["cost"]) for each in schedules]
    costs = [old if new is None else new for new, old in zip(fits, before, strict=True)]
    after = [scaled(text, by) for text, by in zip(costs, balanced(costs, times, units), strict=True)]
    losses = " -> ".join(f"{100 * mean_loss(texts, times, units):.2f}" for texts in (before, after))
    print(f"{name}: {losses} % over the best of {len(schedules)} at {len(times)} shapes")
    for schedule, text in zip(schedules, after, strict=True):
        schedule["cost"] = text


def _times(kernel: str, schedules: Any, files: Sequence[Mapping[str, Any]]) -> Iterator[Times]:
    """Times of the schedules of a list, by their numbers in it, where they admit a shape."""
    keys = [_key(each["config"]) for each in schedules]
    for file in files:
        found = file["kernels"].get(kernel, {"configs": [], "times": []})
        numbers = [keys.index(_key(config)) for config in found["configs"]]
        for each in found["times"]:
            told = {numbers[int(old)]: float(time) for old, time in each["us"].items()}
            admits = {n for n in told if _admits(schedules[n], each["dims"])}
            yield Times(each["dims"], {n: us for n, us in told.items() if n in admits})


def _key(config: Mapping[str, Any]) -> str:
    return json.dumps({name: config.get(name, 0) for name in ("bM", "bN", "threads", "blocks")})


def _admits(schedule: Any, dims: Mapping[str, int]) -> bool:
    return all(parse_guard(str(guard)).admits(dims[name]) for name, guard in schedule.get("dims", {}).items())


if __name__ == "__main__":
    main()
