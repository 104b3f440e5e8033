"""Builds a folder that times the schedules of schedules.toml at random shapes on a machine with a GPU.

    python benchmarks/gpu/costs/schedules.py [--out DIR] [--kernel GLOB]... [--costs OLD.json]...  # here
    python3 schedules.py --json times.json                        # in DIR, on the machine with the GPU
    tilec fit benchmarks/gpu/costs/schedules.toml times.json --kernel NAME --part LIST:M=1..16:4 ...

``--costs`` has costs that are fitted to old times lie in the folder, so that there ``--within 1.35`` leaves
out what they tell for slow. What `tilec fit` writes is manifests/llm.schedules.toml, from which
manifests/llm.toml takes the schedules of its 16-bit products. The times lie in measured/. Lists for few rows
are fitted to those of the library's own variants (balance.py has their seeds), variants_few_h200.json and
variants_h200.json, by

    --kernel matmul_float16 --gain 0.0003 --part matmul_16_few:M=1..16:5
    --kernel linear_bfloat16 --gain 0.0003 --part linear_16_few:M=1..16:7
    --kernel linear_int8 --gain 0.0003 --part int8_aligned_few:M=1..64:7

without the shapes of seed 941, which came behind, and the times of matmul_bfloat16 by the name
matmul_float16; matmul_16_few has a tile of matmul_16_some beside these, by its cost. Lists for rows that TMA
does not take are fitted to schedules_h200.json, times on an H200 of 21 November 2026 (seed 22), by

    --kernel linear_ragged_bfloat16 --part linear_16_ragged_few:M=1..16:6
    --part linear_16_ragged_some:M=17..64:6

Those of `matmul` for up to 128 rows and rows of B that start anywhere are fitted to
schedules_folds_h200.json, times of the 23rd (seeds 221, 223 and 227, without N of multiples of 8), by

    --kernel matmul_folded_float16 --gain 0.001 --part matmul_16_ragged_few:M=1..16:7
    --part matmul_16_ragged_some:M=17..128:8

The others are fitted to three files: schedules_22_h200.json, times of the day after (seeds 101 and 103, 30
shapes that had been slow, ``--models`` seed 105; those of two runs brought together by what cuBLAS took),
schedules_24_h200.json, times of the 24th (``--within 1.35``; seeds 601 with ``--rows 17 16384``, 607 with
``--rows 1024 16384 --columns 128 768``, 613 with ``--rows 17 640 --columns 128 8192 --depth 12000 32768``,
and with ``--models`` 617 with ``--rows 17 2048`` and 619 with ``--rows 129 320``), and
schedules_25_h200.json (seeds 801 with ``--models --rows 17 256``, 803 with ``--rows 17 1024``, 805 with
``--rows 700 16384 --columns 128 304 --depth 4000 32768``, 807 with ``--rows 17 128 --depth 128 700``, 809
with ``--rows 17 640 --columns 128 8192 --depth 12000 32768`` and 811 with ``--rows 1024 16384``), by

    --kernel matmul_float16 --gain 0.0003 --part matmul_16_some:M=17..128:18 --part "matmul_16:M=>=129:32"
    --kernel linear_bfloat16 --gain 0.0003 --part linear_16_some:M=17..64:12
    --part linear_16_more:M=65..1024:32 --part "linear_16:M=>=1025:20"

and, as rows are those of aligned copies where there are more of them,

    --kernel matmul_float16 --gain 0.0005 --part "matmul_16_ragged:M=>=129:6"
    --kernel linear_bfloat16 --gain 0.0005 --part linear_16_ragged_more:M=65..1024:6
    --part "linear_16_ragged:M=>=1025:5"

Those of 8-bit types and packed weights are fitted to schedules_families_h200.json (seed 3,
of packed weights 75 shapes with ``--models`` and seed 5, too, of 8-bit types, with ``--models``, seeds 51
with ``--rows 17 2048`` and 52 with ``--rows 1024 16384``, of 129 to 256 rows of scaled blocks seeds 61, with
``--models``, and 62, of linear_fp8 113 and 117, of the 22nd, and with ``--models`` 115, alone) and, but for
scaled blocks, `int8` and `int8_few`, to schedules_families_25_h200.json (seeds 831 with
``--models --rows 1 256``, 833 with ``--rows 1 1024``, 839 with ``--rows 1 64``, 841 with ``--rows 65 1024``
and 843 with ``--rows 1024 16384``; fp8 and int8_aligned to that alone), by

    --kernel linear_fp8_few --gain 0.0003 --part fp8_few:M=1..64:11
    --kernel linear_fp8 --gain 0.0003 --part "fp8:M=>=65:20"
    --kernel linear_packed_w4a16 --gain 0.0003 --part "packed_4:M=>=1:15" --part packed_4_few:M=1..8:4
    --kernel linear_packed_w8a16 --gain 0.0003 --part "packed_8:M=>=1:15"
    --kernel linear_int8 --gain 0.0003 --part "int8_aligned:M=>=65:10"
    --kernel linear_int8 --part int8_few:M=1..64:6 --part "int8:M=>=65:10"
    --kernel linear_fp8_blocks --part fp8_blocks_few:M=1..128:5 --part "fp8_blocks:M=>=129:7"
    --kernel linear_fp8_blocks_some --gain 0.001 --part fp8_blocks_some:M=129..256:9

without what added little (32 columns and a pair in fp8_blocks_some), with the tiles that large shapes had
been tuned for in place of others like them (bands of 32 in fp8_blocks). Tiles of 128 x 192 in fp8_blocks
are fitted to 22 shapes of their own ("Wider tiles of scaled blocks" in
docs/performance/gpu-quantised.md), each time as a share of what tiles of 128 x 128 took in
that run, times what their cost says; the term of K that is no multiple of 32 is theirs by bytes of a trip.
Costs in int8 of tiles of 128 x 128 and pairs of 256 x 128 are fitted once more to schedules_rows_h200.json:
times of the list itself after boxes of pairs and early starts changed (120 random shapes, and 41 numbers of
rows at seven sizes). linear_16_few has one schedule of linear_16_some.

Those of `linear` for up to 128 rows and a K of any size are fitted to schedules_folds_h200.json, too (seeds
231, 237, 239, 243 and 247), by

    --kernel linear_folded_bfloat16 --gain 0.001 --part linear_16_ragged_few:M=1..16:6
    --part linear_16_ragged_some:M=17..64:6 --part linear_16_folded_more:M=65..128:4

where the last list goes on for more rows with linear_16_ragged_more. Those of weights of 4 bits with a scale
for 32, in examples/cpp/llama/schedules.toml, are fitted to schedules_packed_h200.json (seeds 253, with
``--models``, 257 and 259), by

    --kernel linear_packed_w4a16_parts --gain 0.001 --part packed_few:M=1..16:7
    --part packed_some:M=17..64:6 --part "packed:M=>=65:6"

Attention and rows have scripts of their own (attention.py, rows.py).
"""

from __future__ import annotations

import argparse
import copy
import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

import tomlkit

from tilec.build.library import build
from tilec.build.schedules.features import features_of
from tilec.build.schedules.fit import fit
from tilec.capacity import CAPACITY
from tilec.manifest import load_manifest
from tilec.tune.fit.schedule_file import read_times

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from random_shapes import write_runner

HERE = Path(__file__).resolve().parent
MANIFEST = HERE / "schedules.toml"


def main() -> None:
    """Builds the library, then the folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--out", type=Path, default=Path("dist/gpu-schedules"))
    parser.add_argument("--kernel", action="append", default=[], metavar="GLOB", help="these alone")
    parser.add_argument(
        "--costs", action="append", default=[], type=Path, metavar="TIMES", help="fit costs to these"
    )
    options = parser.parse_args()
    out = options.out
    write_runner(out)
    split = write_split(out / "schedules.toml", options.kernel)
    built = build(split, Path("dist/gpu-schedules-library"))
    shutil.copy(built.report.library, out / "library.so")
    if options.costs:
        kept = _kept(tomlkit.parse(MANIFEST.read_text()).unwrap(), options.kernel)
        costs = {each["name"]: fitted_costs(options.costs, each["name"]) for each in kept}
        (out / "costs.json").write_text(json.dumps(costs))
    print(f"on the machine with the GPU: cd {out} && python3 schedules.py --json times.json")


def fitted_costs(paths: Sequence[Path], kernel: str) -> dict[int, str]:
    """Costs of the schedules of ``kernel`` by their numbers, of those that the times in the files tell."""
    variants = load_manifest(MANIFEST, kernels=[kernel]).kernels[0].variants
    told = read_times(paths, kernel, variants)
    fits = {n: fit(features_of(variant), n, told.times, told.units) for n, variant in enumerate(variants)}
    return {number: text for number, text in fits.items() if text is not None}


def write_split(path: Path, kernels: Sequence[str] = ()) -> Path:
    """``path``: the manifest with no more schedules to a kernel than a library can choose among. Those behind
    them are of kernels NAME__2 and so on, which the runner brings together. ``kernels``: globs of those kept.
    """
    document = tomlkit.parse(MANIFEST.read_text()).unwrap()
    document["kernel"] = [part for kernel in _kept(document, kernels) for part in _parts(kernel)]
    path.write_text(tomlkit.dumps(document))
    return path


def _kept(document: dict[str, Any], globs: Sequence[str]) -> list[dict[str, Any]]:
    """The kernels of a manifest whose names one of the globs is for; all without globs."""
    return [each for each in document["kernel"] if any(fnmatch(each["name"], k) for k in globs or ("*",))]


def _parts(kernel: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """``kernel``, its schedules in place, as many times as it takes."""
    file, function = kernel["source"].split(":")
    (override,) = kernel["override"]
    lists = override["schedules"]
    schedules = [each for text in ([lists] if isinstance(lists, str) else lists) for each in _listed(text)]
    open_ones = [each for each in schedules if "dims" not in each]
    most = CAPACITY.max_choices - 1
    for number, first in enumerate(range(0, len(schedules), most), start=1):
        listed = schedules[first : first + most]
        if all("dims" in each for each in listed):  # a library has an answer for every call
            listed = [*listed, *open_ones[:1]]
        part = copy.deepcopy(kernel)
        part["name"] += f"__{number}" if number > 1 else ""
        part["source"] = f"{(HERE / file).resolve()}:{function}"
        part["override"] = [{**override, "schedules": listed}]
        yield part


def _listed(text: str) -> list[dict[str, Any]]:
    """The schedules of ``file.toml:name``."""
    file, name = text.split(":")
    found: list[dict[str, Any]] = _read(HERE / file)[name]
    return found


@cache
def _read(file: Path) -> dict[str, Any]:
    """What a TOML file holds: each has the lists of many kernels."""
    return tomlkit.parse(file.read_text()).unwrap()


if __name__ == "__main__":
    main()
