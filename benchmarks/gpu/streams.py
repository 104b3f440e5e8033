"""Builds kernels that memory bounds into a folder that times them on a machine with a GPU.

    python benchmarks/gpu/streams.py [-o DIR]
    python3 DIR/run.py [--json FILE] [--only NAME]...   # there, with torch

The folder holds the library of tests/kernels/streams.toml, the loader and run.py,
which compares each kernel with torch and times it beside torch and beside a copy of as many bytes.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from bundle import copy_shared

from tilec.build.library import build

HERE = Path(__file__).resolve().parent
MANIFEST = HERE.parents[1] / "tests" / "kernels" / "streams.toml"


def main() -> None:
    """Builds, writes the folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--out", type=Path, default=Path("dist/gpu-streams"))
    options = parser.parse_args()
    write_folder(options.out)
    print(f"on the machine with the GPU: python3 {options.out}/run.py")


def write_folder(out: Path) -> None:
    """Writes the folder, in place of an older one."""
    shutil.rmtree(out, ignore_errors=True)
    library = build(MANIFEST, out / "package", targets=["sm_90a"]).report.library
    copy_shared(out / "tilec")
    shutil.copy(library, out / "libstreams.so")
    shutil.rmtree(out / "package")
    shutil.copy(HERE / "runner" / "timing.py", out)
    shutil.copytree(
        HERE / "streams_runner", out, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True
    )


if __name__ == "__main__":
    main()
