"""Builds a folder that calls a library through every door for frameworks on a machine with a GPU.

    python benchmarks/gpu/doors.py [-o DIR] [--target sm_90a] [--wheel FILE]...
    python3 DIR/run.py [--device cpu] [--only GROUP]...   # there, with torch and a C++ compiler

The folder holds the library of doors.toml for that GPU and for CPUs, its packages for Python and the kernel
hub, its operators of torch without Python, and run.py, which compares each with torch or NumPy. It needs
neither tilec nor TVM there. What JAX needs beside itself, jax-tvm-ffi and apache-tvm-ffi, may come along as
wheels for that machine's Python (`pip download --no-deps --only-binary=:all: --python-version 3.12 ...`).
"""

from __future__ import annotations

import argparse
import shutil
import zipfile
from collections.abc import Sequence
from pathlib import Path

from tilec.build.library import build
from tilec.build.written.beside import Asked

HERE = Path(__file__).resolve().parent
RUNNER = HERE / "doors_runner"


def main() -> None:
    """Builds, writes the folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--out", type=Path, default=Path("dist/gpu-doors"))
    parser.add_argument(
        "--target", action="append", help="what of doors.toml to build; repeatable (default: all)"
    )
    parser.add_argument(
        "--wheel", action="append", type=Path, help="a package that the machine lacks; repeatable"
    )
    options = parser.parse_args()
    write_folder(options.out, options.target or (), options.wheel or ())
    size = sum(file.stat().st_size for file in options.out.rglob("*") if file.is_file())
    print(f"{options.out}: {size / 2**20:.1f} MiB")
    print(f"on the machine with the GPU: python3 {options.out}/run.py")


def write_folder(out: Path, targets: Sequence[str] = (), wheels: Sequence[Path] = ()) -> None:
    """Writes the folder, in place of an older one; wheels lie unpacked in its folder ``site``."""
    shutil.rmtree(out, ignore_errors=True)
    build(HERE / "doors.toml", out, targets=targets, asked=Asked(hub=True, torch=True))
    shutil.rmtree(out / "rust")
    shutil.copytree(RUNNER, out, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as packed:
            packed.extractall(out / "site")


if __name__ == "__main__":
    main()
