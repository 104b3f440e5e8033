"""Builds products without guards into a folder that times them on a machine with a GPU.

    python benchmarks/gpu/open_dims.py [-o DIR]
    python3 DIR/run.py [--json FILE]   # there, with torch

The folder holds the kernels of open_dims.toml for sm_90a and, as another library, for compute_80, whose code
any newer GPU runs; the loader; and run.py, which compares each with torch and times both beside torch, at
shapes whose rows begin at any element.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from bundle import copy_shared

from tilec.build.library import build

HERE = Path(__file__).resolve().parent
TARGETS = ("sm_90a", "compute_80")


def main() -> None:
    """Builds, writes the folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--out", type=Path, default=Path("dist/gpu-open-dims"))
    options = parser.parse_args()
    write_folder(options.out)
    print(f"on the machine with the GPU: python3 {options.out}/run.py")


def write_folder(out: Path) -> None:
    """Writes the folder, in place of an older one."""
    shutil.rmtree(out, ignore_errors=True)
    copy_shared(out / "tilec")
    for target in TARGETS:
        library = build(HERE / "open_dims.toml", out / "package", targets=[target]).report.library
        shutil.copy(library, out / f"{target}.so")
        shutil.rmtree(out / "package")
    shutil.copy(HERE / "runner" / "timing.py", out)
    shutil.copy(HERE / "open_dims_runner" / "run.py", out)


if __name__ == "__main__":
    main()
