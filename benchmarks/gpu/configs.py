"""Runs kernels with tiles, threads, stages and forms that are drawn at random, and compares them with torch.

    python benchmarks/gpu/configs.py [--seed N] [--count N] [--family NAME ...] [--json FILE]

(where a GPU and torch are). The kernels are those of configs_families/, compiled in process by all cores
first. Each is run three times on the same numbers: results that differ from torch's, or from each other, are
printed and make the exit status 1, as do kernels that fail for another reason than too little shared memory.
Times, microseconds, are the least of five means of five calls, beside torch's way to the same numbers.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
from collections import defaultdict
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from statistics import geometric_mean
from typing import Any, NamedTuple

import torch
from loops import listed, microseconds

from tilec.errors import TilecError

#: Modules of configs_families, of which each has a FAMILY.
NAMES = (
    "product", "attention", "few_bits", "gated", "layers", "chunks", "backward", "decode", "scaled",
    "gathered", "split", "convolution", "rows", "latent", "ragged", "walked", "open",
)  # fmt: skip
FAMILIES = {name: import_module(f"configs_families.{name}").FAMILY for name in NAMES}
#: Bytes of tiles, and elements of results for each thread, beyond which nothing is drawn.
_SHARED, _ELEMENTS = 220_000, 200
#: How far off results may be, of their own size and of the mean of all, by the type of operands or results.
_NEAR = {"float16": 0.03, "bfloat16": 0.12, "float32": 0.18}


class Config(NamedTuple):
    """A kernel's family and what it is called with."""

    family: str
    values: dict[str, Any]


def main() -> int:
    """Draws, compiles, compares and times."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--family", action="append", choices=NAMES)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    configs = list(drawn(random.Random(options.seed), options.count, options.family or list(NAMES)))
    with multiprocessing.get_context("spawn").Pool(os.cpu_count(), maxtasksperchild=40) as pool:
        reasons = pool.map(compiled, configs, chunksize=1)
    torch.set_default_device("cuda")
    torch.manual_seed(options.seed)
    rows = [
        {"family": config.family, **config.values, **(measured(config) if not reason else {"failed": reason})}
        for config, reason in zip(configs, reasons, strict=True)
    ]
    wrong = [row for row in rows if row.get("wrong") or ("failed" in row and "bytes" not in row["failed"])]
    print(*wrong, sep="\n")
    print(*summary(rows), sep="\n")
    if options.json:
        options.json.write_text(json.dumps({"machine": torch.cuda.get_device_name(), "rows": rows}))
    return int(bool(wrong))


def drawn(of: random.Random, count: int, families: list[str]) -> Iterator[Config]:
    """Configs whose tiles a multiprocessor holds."""
    left = count
    while left:
        family = of.choice(families)
        values, room, elements = FAMILIES[family].draw(of)
        if room <= _SHARED and elements / values["threads"] <= _ELEMENTS:
            left -= 1
            yield Config(family, values)


def compiled(config: Config) -> str:
    """Why a kernel does not compile; it goes to the cache on disk."""
    try:
        FAMILIES[config.family].kernel(**config.values)
    except TilecError as error:
        return str(error)
    return ""


def measured(config: Config) -> dict[str, Any]:
    """How far off a kernel's results are, and how long it takes beside torch."""
    family = FAMILIES[config.family]
    inputs, wanted, peer = family.work(config.values)
    kernel = family.kernel(**config.values)
    first, *again = (listed(kernel(*inputs)) for _ in range(3))
    types = {str(tensor.dtype).removeprefix("torch.") for tensor in (*inputs, *first)}
    near = max(_NEAR.get(dtype, 0.0) for dtype in types)
    off = max(_distance(made.float(), right) for made, right in zip(first, wanted, strict=True))
    differ = family.repeats(config.values) and any(
        not torch.equal(made, other) for each in again for made, other in zip(first, each, strict=True)
    )
    return {
        "off": off,
        "wrong": off > near or differ,
        "differ": differ,
        "us": microseconds(lambda: kernel(*inputs), 5),
        "torch us": microseconds(peer, 5),
    }


def _distance(made: torch.Tensor, wanted: torch.Tensor) -> float:
    """The largest difference, of a number's own size and of the mean of all."""
    size = wanted.abs() + wanted.abs().mean()
    return float(((made - wanted).abs() / size).nan_to_num(torch.inf).max())


def summary(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Times of torch over those of kernels, by family and threads."""
    found = defaultdict(list)
    for row in rows:
        if "us" in row:
            found[row["family"], row["threads"]].append(row["torch us"] / row["us"])
    yield f"{'family':10s} threads  kernels    mean   worst"
    for (family, threads), rates in sorted(found.items()):
        yield f"{family:10s} {threads:7d} {len(rates):8d} {geometric_mean(rates):7.2f} {min(rates):7.3f}"


if __name__ == "__main__":
    raise SystemExit(main())
