"""Runs kernels with tiles, threads, stages and forms that are drawn at random, and compares them with torch.

    python benchmarks/gpu/configs.py [--seed N] [--count N] [--json FILE]   # where a GPU and torch are

The kernels are those of configs_kernels.py, compiled in process by all cores first. Each is run three times
on the same numbers: results that differ from torch's, or from each other, are printed and make the exit
status 1, as do kernels that fail for another reason than too little shared memory. Times, microseconds, are
the least of five means of five calls, beside torch's product of float16 numbers or its attention.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import geometric_mean
from typing import Any, NamedTuple

import torch
from configs_kernels import FAMILIES
from loops import microseconds

from tilec.errors import TilecError

#: Bytes of tiles, and elements of results for each thread, beyond which nothing is drawn.
_SHARED, _SUMS = 220_000, 200
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
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    configs = list(drawn(random.Random(options.seed), options.count))
    with multiprocessing.get_context("spawn").Pool(os.cpu_count(), maxtasksperchild=40) as pool:
        reasons = pool.map(compiled, configs, chunksize=1)
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


def drawn(of: random.Random, count: int) -> Iterator[Config]:
    """Configs whose tiles a multiprocessor holds."""
    makers = {"product": _product, "attention": _attention, "few_bits": _few_bits}
    left = count
    while left:
        family = of.choice(["product", "attention", "attention", "few_bits"])
        values, room, sums = makers[family](of)
        if room <= _SHARED and sums / values["threads"] <= _SUMS:
            left -= 1
            yield Config(family, values)


def _product(of: random.Random) -> tuple[dict[str, Any], int, int]:
    dtype = of.choice(["float16", "float16", "bfloat16", "bfloat16", "float32", "int8", "float8_e4m3fn"])
    narrow = dtype in ("int8", "float8_e4m3fn")
    values = {
        "M": of.choice([1024, 1000, 4096, 2040]),
        "N": of.choice([1024, 1160, 4096]),
        "K": of.choice([1024, 1088, 4096]),
        "bM": of.choice([16, 32, 64, 64, 96, 128, 128, 128, 192, 256]),
        "bN": of.choice([16, 32, 48, 64, 64, 80, 96, 128, 128, 160, 192, 256]),
        "bK": of.choice([32, 64, 128] if narrow else [16, 32, 64, 64, 128]),
        "threads": of.choice([64, 128, 128, 256, 256, 384, 512]),
        "stages": of.randrange(6),
        "ta": not narrow and of.random() < 0.2,
        "tb": narrow or of.random() < 0.6,
        "dtype": dtype,
        "out": "int32" if dtype == "int8" else of.choice(["float16", "float32", "bfloat16"]),
        "form": of.choice(
            ["", "shared", "elements"] if dtype == "int8" else ["", "bias", "shared", "elements"]
        ),
    }
    size = {"float32": 4, "int8": 1, "float8_e4m3fn": 1}.get(dtype, 2)
    room = (values["bM"] + values["bN"]) * values["bK"] * size * max(values["stages"], 1)
    return values, room, values["bM"] * values["bN"]


def _attention(of: random.Random) -> tuple[dict[str, Any], int, int]:
    channels, causal = of.choice([32, 48, 64, 64, 80, 96, 112, 128, 128, 160, 192, 256]), of.random() < 0.5
    columns = of.choice([16, 32, 64, 64, 96, 128, 128, 176])
    length = of.choice([2048, 2000, 1024])
    values = {
        "B": 2,
        "S": length if causal else length // columns * columns,
        "H": 16,
        "G": of.choice([1, 4]),
        "D": channels,
        "DV": of.choice([channels, channels, channels, 64, 128]),
        "bM": of.choice([32, 64, 64, 128, 128, 192]),
        "bN": columns,
        "threads": of.choice([128, 128, 256, 256, 384]),
        "stages": of.choice([0, 1, 2, 2, 3]),
        "causal": causal,
        "dtype": of.choice(["float16", "bfloat16"]),
        "form": of.choice(["", "", "shared", "late", "sums"]),
    }
    rows, stages = values["bM"], max(values["stages"], 1)
    room = 2 * (rows * channels + columns * stages * (channels + values["DV"]))
    return values, room, rows * (values["DV"] + columns)


def _few_bits(of: random.Random) -> tuple[dict[str, Any], int, int]:
    values = {
        "M": of.choice([16, 64, 1024, 1000]),
        "N": of.choice([1024, 4096]),
        "K": of.choice([1024, 4096]),
        "group": of.choice([32, 64, 128]),
        "bM": of.choice([16, 32, 64, 128]),
        "bN": of.choice([32, 64, 128, 256]),
        "bK": of.choice([32, 64, 128]),
        "threads": of.choice([128, 256]),
        "stages": of.randrange(4),
        "form": of.choice(["registers", "turned"]),
    }
    return values, 0, values["bM"] * values["bN"]


def compiled(config: Config) -> str:
    """Why a kernel does not compile; it goes to the cache on disk."""
    try:
        FAMILIES[config.family](**config.values)
    except TilecError as error:
        return str(error)
    return ""


def measured(config: Config) -> dict[str, Any]:
    """How far off a kernel's results are, and how long it takes beside torch."""
    values = config.values
    inputs, wanted, peer = {
        "product": _of_product,
        "attention": _of_attention,
        "few_bits": _of_few_bits,
    }[config.family](values)
    kernel = FAMILIES[config.family](**values)
    first, *again = (kernel(*inputs) for _ in range(3))
    size = wanted.abs() + wanted.abs().mean()
    off = float(((first.float() - wanted).abs() / size).nan_to_num(torch.inf).max())
    types = [str(tensor.dtype).removeprefix("torch.") for tensor in (*inputs, first)]
    near = max(_NEAR.get(dtype, 0.0) for dtype in types if dtype in _NEAR)
    wrong = off > near or not all(torch.equal(first, other) for other in again)
    return {
        "off": off,
        "wrong": wrong,
        "us": microseconds(lambda: kernel(*inputs), 5),
        "torch us": microseconds(peer, 5),
    }


_Work = tuple[tuple[torch.Tensor, ...], torch.Tensor, Any]


def _of_product(values: dict[str, Any]) -> _Work:
    rows, columns, depth = (values[name] for name in "MNK")
    dtype = getattr(torch, values["dtype"])
    a = _random(depth, rows) if values["ta"] else _random(rows, depth)
    b = _random(columns, depth) if values["tb"] else _random(depth, columns)
    a, b = ((each * (9 if dtype == torch.int8 else 1)).to(dtype) for each in (a, b))
    bias = _random(columns)
    wide, high = (
        (a.T if values["ta"] else a).float(),
        (b.T if values["tb"] else b).float(),
    )
    wanted = wide @ high
    if values["form"] == "bias":
        wanted = wanted + bias
    if values["form"] == "elements":
        wanted = wanted.clamp(min=0)
    half, other = wide.half(), high.half()
    return (a, b, bias), wanted, lambda: half @ other


def _of_attention(values: dict[str, Any]) -> _Work:
    batch, length, heads, groups = (values[name] for name in ("B", "S", "H", "G"))
    dtype, shared = getattr(torch, values["dtype"]), heads // groups
    q = _random(batch, length, heads, values["D"]).to(dtype)
    k = _random(batch, length, shared, values["D"]).to(dtype)
    v = _random(batch, length, shared, values["DV"]).to(dtype)
    sums = torch.zeros(batch, heads, length, device="cuda")

    def peer(widen: bool = False) -> torch.Tensor:
        turned = (each.transpose(1, 2).float() if widen else each.transpose(1, 2) for each in (q, k, v))
        return torch.nn.functional.scaled_dot_product_attention(
            *turned, is_causal=values["causal"], enable_gqa=groups > 1
        )

    return (q, k, v, sums), peer(widen=True).transpose(1, 2), peer


def _of_few_bits(values: dict[str, Any]) -> _Work:
    rows, columns, depth = (values[name] for name in "MNK")
    x = _random(rows, depth).half()
    packed = torch.randint(0, 256, (columns, depth // 2), device="cuda").to(torch.uint8)
    factors = (_random(columns, depth // values["group"]).abs() * 0.1).half()
    numbers = torch.stack([packed & 15, packed >> 4], -1).reshape(columns, depth).float() - 8
    weights = (numbers * factors.float().repeat_interleave(values["group"], 1)).half()
    return (x, packed, factors), x.float() @ weights.float().T, lambda: x @ weights.T


def _random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device="cuda") * 0.3


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
