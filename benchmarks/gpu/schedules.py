"""Builds a folder that times the schedules of schedules.toml at random shapes on a machine with a GPU.

    python benchmarks/gpu/schedules.py [--out DIR]                     # here
    python3 schedules.py --json times.json                             # in DIR, on the machine with the GPU
    tilec fit benchmarks/gpu/schedules.toml times.json --kernel matmul_float16 --part NAME:M=1..16:4 ...

What `tilec fit` writes is manifests/llm.schedules.toml, from which manifests/llm.toml takes the schedules of
its 16-bit products.
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
    out = parser.parse_args().out
    write_runner(out)
    built = build(MANIFEST, Path("dist/gpu-schedules-library"))
    shutil.copy(built.report.library, out / "library.so")
    print(f"on the machine with the GPU: cd {out} && python3 schedules.py --json times.json")


if __name__ == "__main__":
    main()
