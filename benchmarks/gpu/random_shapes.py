"""Builds manifests/llm.toml into a folder that times it at random shapes on a machine with a GPU.

    python benchmarks/gpu/random_shapes.py [--out DIR]

The folder holds the kernels of the manifest that shapes are drawn for, built for sm_90a as a user builds
them, a copy that kernels of rows are held to, and run.py, which needs Python, NumPy and torch there, but not
tilec: it draws shapes by a seed, checks and times each beside cuBLAS, cuDNN, torch or the copy, or goes
through the rows of matrix kernels, and writes JSON.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path

from bundle import HERE, OWN_MANIFEST, SHIPPED_MANIFEST, copy_shared

from tilec.build.library import build

TARGET = "sm_90a"
COPY = "copy_float16"
_RUNNER = HERE / "shapes_runner"


def main() -> None:
    """Builds the libraries, then the folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--out", type=Path, default=Path("dist/gpu-shapes"))
    options = parser.parse_args()
    write_folder(options.out)
    print(f"on the machine with the GPU: cd {options.out} && python3 run.py --json shapes.json")


def write_folder(out: Path) -> None:
    """The libraries, and what runs them."""
    write_runner(out)
    built = {
        "library": build(
            SHIPPED_MANIFEST, Path("dist/gpu-shapes-library"), targets=[TARGET], kernels=kernels()
        ),
        "copier": build(OWN_MANIFEST, Path("dist/gpu-shapes-copy"), targets=[TARGET], kernels=(COPY,)),
    }
    for name, result in built.items():
        shutil.copy(result.report.library, out / f"{name}.so")
    (out / "libraries.json").write_text(json.dumps({name: f"{name}.so" for name in built}))


def write_runner(out: Path) -> None:
    """A new folder with the runner, and what it shares with the bundle's."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    for source in (HERE / "runner", _RUNNER):
        shutil.copytree(source, out, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    copy_shared(out / "tilec")


def kernels() -> tuple[str, ...]:
    """Of which shapes are drawn."""
    sys.path.insert(0, str(_RUNNER))
    from draw import ATTENTION, PRODUCTS, QUANTISED, ROWS

    return (*PRODUCTS, *ATTENTION, *ROWS, *QUANTISED)


if __name__ == "__main__":
    main()
