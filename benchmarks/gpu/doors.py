"""Builds a folder that calls a library through every door for frameworks on a machine with a GPU.

    python benchmarks/gpu/doors.py [-o DIR] [--target sm_90a]
    python3 DIR/run.py [--device cpu] [--only GROUP]...   # there, with torch and a C++ compiler

The folder holds the library of doors.toml for that GPU and for CPUs, its packages for Python and the kernel
hub, its operators of torch without Python, and run.py, which compares each with torch. It needs neither tilec
nor TVM there.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from tilec.build.library import build

HERE = Path(__file__).resolve().parent
RUNNER = HERE / "doors_runner"


def main() -> None:
    """Builds, writes the folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--out", type=Path, default=Path("dist/gpu-doors"))
    parser.add_argument(
        "--target", action="append", help="what of doors.toml to build; repeatable (default: all)"
    )
    options = parser.parse_args()
    write_folder(options.out, options.target or ())
    size = sum(file.stat().st_size for file in options.out.rglob("*") if file.is_file())
    print(f"{options.out}: {size / 2**20:.1f} MiB")
    print(f"on the machine with the GPU: python3 {options.out}/run.py")


def write_folder(out: Path, targets: tuple[str, ...] | list[str] = ()) -> None:
    """Writes the folder, in place of an older one."""
    shutil.rmtree(out, ignore_errors=True)
    build(HERE / "doors.toml", out, targets=targets, hub=True, torch=True)
    shutil.rmtree(out / "rust")
    shutil.copytree(RUNNER, out, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))


if __name__ == "__main__":
    main()
