"""Builds a folder that times the schedules of schedules.toml at random shapes on a machine with a GPU.

    python benchmarks/gpu/schedules.py [--out DIR] [--kernel GLOB]...  # here
    python3 schedules.py --json times.json                             # in DIR, on the machine with the GPU
    tilec fit benchmarks/gpu/schedules.toml times.json --kernel matmul_float16 --part NAME:M=1..16:4 ...

What `tilec fit` writes is manifests/llm.schedules.toml, from which manifests/llm.toml takes the schedules of
its 16-bit products. Its lists are fitted to schedules_h200.json, times on an H200 of 21 November 2026 (seeds
21, 31, 32, 41 and 42, of rows that TMA does not take seed 22), by

    --kernel matmul_float16 --part matmul_16_few:M=1..16:5 --part matmul_16_some:M=17..128:8
    --part "matmul_16:M=>=129:12"
    --kernel linear_bfloat16 --part linear_16_few:M=1..16:5 --part linear_16_some:M=17..64:7
    --part linear_16_more:M=65..1024:12 --part "linear_16:M=>=1025:9"
    --kernel matmul_ragged_float16 --part matmul_16_ragged_few:M=1..16:6
    --part matmul_16_ragged_some:M=17..128:6
    --kernel linear_ragged_bfloat16 --part linear_16_ragged_few:M=1..16:6
    --part linear_16_ragged_some:M=17..64:6

and, as rows are those of aligned copies where there are more of them,

    --kernel matmul_float16 --part "matmul_16_ragged:M=>=129:5"
    --kernel linear_bfloat16 --part linear_16_ragged_more:M=65..1024:5 --part "linear_16_ragged:M=>=1025:4"
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from bundle import HERE
from random_shapes import write_runner

from tilec.build.library import build

MANIFEST = HERE / "schedules.toml"


def main() -> None:
    """Builds the library, then the folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--out", type=Path, default=Path("dist/gpu-schedules"))
    parser.add_argument("--kernel", action="append", default=[], metavar="GLOB", help="these alone")
    options = parser.parse_args()
    out = options.out
    write_runner(out)
    built = build(MANIFEST, Path("dist/gpu-schedules-library"), kernels=options.kernel)
    shutil.copy(built.report.library, out / "library.so")
    print(f"on the machine with the GPU: cd {out} && python3 schedules.py --json times.json")


if __name__ == "__main__":
    main()
