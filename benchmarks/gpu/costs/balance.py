"""Balances costs of manifests/llm.schedules.toml by times of what the library chooses among.

    python benchmarks/gpu/random_shapes.py -o DIR                                  # here
    python3 variants.py --json times.json [--random COUNT --seed N]                # in DIR, where the GPU is
    python benchmarks/gpu/costs/balance.py times.json... [--list NAME]... [--floors] [--write]  # here

variants.py times all variants of the list that serves a shape, but for those that cost far more than the
least. Here the costs of each list are multiplied by factors near 1, so that what is chosen is slower than the
best by less in the mean (balanced.py): at these shapes and at those that the list was fitted to, where the
files of schedules.py have them. With ``--floors`` costs keep their factors and get a floor where that makes
what is chosen faster: no schedule may take less for the trips of its blocks than where it took the least. A
cost that is fitted to other shapes may tell so. Without ``--write`` it says what would be gained.

Those that ship come of times on an H200 of 25 November 2026 (measured/): variants_h200.json,
variants_random_h200.json (``--random 40 --seed 907``) and variants_few_h200.json (``--random 170 --rows 1 16
--seed 921 --within 3`` of 16-bit products, ``--rows 1 64 --seed 923`` of linear_int8, and 60 of each by
``--depth 8000 32768 --columns 1000 32768 --most 400000000 --seed 941 --within 2``). Floors come of times of
30 November, variants_corners_h200.json: more than 1024 rows with much of K (seeds 2401 and 2411), little
(2403, 2413) and few columns (2417), up to 1024 rows with few columns (2405, 2415) and many (2419), up to 128
(2421), ``--within 1.15`` or 1.2.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import tomlkit
from balanced import balanced, mean_loss, scaled
from terms import MANIFESTS, MEASURED, asked

from tilec.build.schedules.features import features_of
from tilec.build.schedules.fit import Times
from tilec.costs import cost
from tilec.manifest import Variant, load_manifest
from tilec.manifest.guards import parse_guard

LISTS = MANIFESTS / "llm.schedules.toml"
#: What says how bytes are kept, and not which schedule it is.
_ASIDE = ("pdl", "evict_first", "evict_last", "constant")
#: How often a time of the library as it is counts, beside one that its lists were fitted to.
_FRESH = 2
#: The share of what a trip took at least that a cost may tell for one.
_FLOOR = 0.97
_OF_16 = ("schedules_22_h200.json", "schedules_24_h200.json", "schedules_25_h200.json")
_OF_FAMILIES = ("schedules_families_h200.json", "schedules_families_25_h200.json")


class Serves(NamedTuple):
    """A list: of which kernel's ``rows`` its variants are, and where else its schedules were timed."""

    kernel: str
    rows: str
    timed_as: str = ""
    files: tuple[str, ...] = ()


SERVES = {
    "matmul_16_few": Serves("matmul_bfloat16", "1..16", "matmul_float16", ("schedules_h200.json",)),
    "matmul_16_some": Serves("matmul_bfloat16", "17..128", "matmul_float16", _OF_16),
    "matmul_16": Serves("matmul_bfloat16", ">=129", "matmul_float16", _OF_16),
    "linear_16_few": Serves("linear_bfloat16", "1..16", "linear_bfloat16", ("schedules_h200.json",)),
    "linear_16_some": Serves("linear_bfloat16", "17..64", "linear_bfloat16", _OF_16),
    "linear_16_more": Serves("linear_bfloat16", "65..1024", "linear_bfloat16", _OF_16),
    "linear_16": Serves("linear_bfloat16", ">=1025", "linear_bfloat16", _OF_16),
    "fp8_few": Serves("linear_fp8", "1..64", "linear_fp8_few", _OF_FAMILIES),
    "fp8": Serves("linear_fp8", ">=65", "linear_fp8", _OF_FAMILIES[1:]),
    "int8_aligned_few": Serves("linear_int8", "1..64", "linear_int8", _OF_FAMILIES[1:]),
    "int8_aligned": Serves("linear_int8", ">=65", "linear_int8", _OF_FAMILIES[1:]),
    "fp8_blocks_some": Serves("linear_fp8_blocks", "129..255"),
    "packed_4": Serves("linear_packed_w4a16", ">=9", "linear_packed_w4a16", _OF_FAMILIES),
    "packed_8": Serves("linear_packed_w8a16", ">=1", "linear_packed_w8a16", _OF_FAMILIES),
}


def main() -> None:
    """Prints a line for each list."""
    options = asked(__doc__.splitlines()[0], SERVES, LISTS, floors=True)
    document = tomlkit.parse(LISTS.read_text())
    fresh = [json.loads(path.read_text()) for path in options.times]
    for name in options.lists or SERVES:
        _balance(name, document[name], fresh, options.floors)
    if options.write:
        LISTS.write_text(tomlkit.dumps(document))


def _balance(name: str, schedules: Any, fresh: Sequence[Mapping[str, Any]], floors: bool) -> None:
    """Multiplies the costs of a list, or gives them ``floors``, and says what that is worth."""
    serves, costs = SERVES[name], [str(each["cost"]) for each in schedules]
    keys = [_key(each["config"]) for each in schedules]
    old = [json.loads((MEASURED / file).read_text()) for file in serves.files]
    told = list(_times(fresh, serves.kernel, serves.rows, keys))
    before = list(_times(old, serves.timed_as, serves.rows, keys))
    if not told:
        print(f"{name}: not timed")
        return
    units = int(fresh[0]["units"])
    times = told * _FRESH + before
    if floors:
        after = _floored(serves.kernel, keys, costs, times, units)
    else:
        factors = balanced(costs, times, units)
        after = [scaled(text, factor) for text, factor in zip(costs, factors, strict=True)]
    parts = {"now": told, "then": before}
    losses = " ".join(
        f"{part} {_percent(costs, times, units)} -> {_percent(after, times, units)} % ({len(times)} shapes)"
        for part, times in parts.items()
        if times
    )
    changed = [number for number, text in enumerate(after) if text != costs[number]]
    print(f"{name}: {losses}, {len(changed)} of {len(costs)} changed")
    for number in changed:
        schedules[number]["cost"] = after[number]


def _floored(
    kernel: str, keys: Sequence[str], costs: Sequence[str], times: Sequence[Times], units: int
) -> list[str]:
    """The costs of the schedules ``keys``, with floors where these lower the mean loss."""
    (plan,) = (each for each in load_manifest(MANIFESTS / "llm.toml").kernels if each.name == kernel)
    variants: dict[str, Variant] = {}
    for variant in plan.variants:
        variants.setdefault(_key(variant.config), variant)
    found = list(costs)
    for number, key in enumerate(keys):
        trips = features_of(variants[key]).shared
        took = [each.us[number] / cost(trips, each.dims, units) for each in times if number in each.us]
        if not took:
            continue
        floor = f"{_FLOOR * min(took):.4g} * {trips}"
        if all(cost(floor, each.dims, units) <= cost(found[number], each.dims, units) for each in times):
            continue
        tried = [*found[:number], f"max({found[number]}, {floor})", *found[number + 1 :]]
        if mean_loss(tried, times, units) < mean_loss(found, times, units):
            found = tried
    return found


def _percent(costs: Sequence[str], times: Sequence[Times], units: int) -> str:
    return f"{100 * math.expm1(mean_loss(costs, times, units)):.2f}"


def _times(
    files: Sequence[Mapping[str, Any]], kernel: str, rows: str, keys: Sequence[str]
) -> Iterator[Times]:
    """Times of the schedules of a list, by their numbers in it, at shapes of such rows where two of them
    were timed."""
    guard = parse_guard(rows)
    for file in files:
        found = file["kernels"].get(kernel, {"configs": [], "times": []})
        numbers = [keys.index(key) if (key := _key(config)) in keys else None for config in found["configs"]]
        for each in found["times"]:
            known: dict[int, float] = {}
            for old, time in each["us"].items():
                number = numbers[int(old)]
                if number is not None:
                    known.setdefault(number, float(time))
            if guard.admits(each["dims"]["M"]) and len(known) > 1:
                yield Times(each["dims"], known)


def _key(config: Mapping[str, Any]) -> str:
    return json.dumps({name: config[name] for name in sorted(config) if name not in _ASIDE})


if __name__ == "__main__":
    main()
