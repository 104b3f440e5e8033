"""Builds a folder that checks and measures a library's CUDA code on a machine with a GPU.

    python benchmarks/gpu/bundle.py [MANIFEST] [-o DIR]

The folder holds the library, tilec's loader, small cases with what they should give, and run.py. It needs
Python, NumPy and torch there, and neither tilec nor TVM.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

import tilec.loader
from tilec.build.library import build
from tilec.codegen.toolchain import find_toolchain
from tilec.package.metadata import ABI_VERSION
from tilec.targets import parse_target
from tilec.verify.facts import KernelFacts, VariantFacts
from tilec.verify.oracle import Author, Expectation, Oracle, authors
from tilec.verify.session import read_facts
from tilec.verify.shapes import cases

HERE = Path(__file__).resolve().parent
OWN_MANIFEST = HERE / "bundle.toml"
MOST_CASES, MOST_ATTEMPTS = 4, 10
_ALIGN = 64


class Blobs:
    """Arrays in one file, equal ones once."""

    def __init__(self) -> None:
        self.data = bytearray()
        self._known: dict[str, int] = {}

    def add(self, array: np.ndarray) -> int:
        """Where the bytes of ``array`` lie."""
        content = np.ascontiguousarray(array).tobytes()
        key = hashlib.sha256(content).hexdigest()
        if key not in self._known:
            self.data += bytes(-len(self.data) % _ALIGN)
            self._known[key] = len(self.data)
            self.data += content
        return self._known[key]


def main() -> None:
    """Builds the library, then the folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("manifest", nargs="?", type=Path, default=OWN_MANIFEST)
    parser.add_argument("-o", "--out", type=Path, default=Path("dist/gpu-bundle"))
    options = parser.parse_args()
    result = build(options.manifest, Path("dist/gpu-library"))
    write_bundle(result.report.library, options.out, authors(options.manifest))
    if options.manifest == OWN_MANIFEST:
        _compile_launch_cost(result.report.out_dir, options.out)
    size = sum(file.stat().st_size for file in options.out.rglob("*") if file.is_file())
    print(f"{options.out}: {len(result.spec.kernels)} kernels, {size / 2**20:.1f} MiB")
    print(f"on the machine with the GPU: python3 {options.out}/run.py")


def write_bundle(library: Path, out: Path, known: dict[str, Author]) -> None:
    """Writes the folder of a built library. ``known``: references and inputs by kernel."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    blobs = Blobs()
    found = [case for kernel in read_facts(library) for case in _cases(kernel, known, blobs)]
    (out / "arrays.bin").write_bytes(blobs.data)
    name = f"{library.name}.{ABI_VERSION}"  # programs that are linked with it ask for its SONAME
    (out / "cases.json").write_text(json.dumps({"library": name, "cases": found}, indent=1))
    shutil.copy(library, out / name)
    shutil.copy(tilec.loader.__file__, out / "loader.py")
    shutil.copytree(HERE / "runner", out, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))


def _compile_launch_cost(package: Path, out: Path) -> None:
    """The C program beside run.py that times warm calls; it finds the library in its own folder."""
    command = [
        *find_toolchain().driver,
        *("-O2", "-g0", "-std=gnu11", "-I", str(package / "include"), str(HERE / "launch_cost.c")),
        *("-o", str(out / "launch_cost"), str(next(out.glob("*.so.*"))), "-Wl,-rpath,$ORIGIN", "-ldl"),
    ]
    subprocess.run(command, check=True)


def _cases(kernel: KernelFacts, known: dict[str, Author], blobs: Blobs) -> Iterator[dict[str, Any]]:
    oracle = Oracle(kernel, known.get(kernel.name, Author()))
    for variant in kernel.variants:
        if not parse_target(variant.target).is_cpu:
            yield from islice(_variant_cases(kernel, variant, oracle, blobs), MOST_CASES)


def _variant_cases(
    kernel: KernelFacts, variant: VariantFacts, oracle: Oracle, blobs: Blobs
) -> Iterator[dict[str, Any]]:
    for number, dims in enumerate(islice(cases(kernel, variant, 0), MOST_ATTEMPTS)):
        expected = oracle.expect(variant, dims, number)
        if expected.problem:
            continue
        yield {
            "kernel": kernel.name,
            "variant": variant.id,
            "target": variant.target,
            "dims": dims,
            "oracle": expected.oracle,
            "tolerance": vars(oracle.tolerance),
            "params": [_param(param, dims, expected, blobs) for param in kernel.params],
        }


def _param(param: Any, dims: dict[str, int], expected: Expectation, blobs: Blobs) -> dict[str, Any]:
    """One argument: a scalar's value, or a tensor's layout and where its contents are; float outputs of a
    reference come as float64."""
    entry: dict[str, Any] = {"name": param.name}
    if not param.is_tensor:
        return {**entry, "scalar": expected.values[param.name]}
    entry |= {
        "dtype": param.dtype,
        "shape": param.shape(dims),
        "strides": param.element_strides(dims),
    }
    if param.name in expected.values:
        entry["input"] = blobs.add(expected.values[param.name])
    if param.is_written:
        entry["output"] = blobs.add(expected.outputs[param.name].astype(np.float64))
    return entry


if __name__ == "__main__":
    main()
