"""Builds a folder that checks and measures a library's CUDA code on a machine with a GPU.

    python benchmarks/gpu/bundle.py [MANIFEST] [-o DIR] [--kernel GLOB]... [--cases N]

The folder holds the library, the parts of tilec that call and compare (SHARED), small cases with what they
should give, and run.py. It needs Python and NumPy there, torch for the peers, and neither tilec nor TVM.
Where TVM is installed there, run.py also has tilec compile, tune and run kernels in process, from its sources
in the folder.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatch
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

import tilec
from tilec.build.library import build
from tilec.codegen.toolchain import find_toolchain
from tilec.dtypes import lookup
from tilec.ir.interp.values import numpy_dtype
from tilec.package.library.metadata import ABI_VERSION
from tilec.package.library.runtime import runtime_folder
from tilec.targets import parse_target
from tilec.trials.comparison import Tolerance
from tilec.trials.facts import KernelFacts, VariantFacts
from tilec.trials.library import read_facts
from tilec.trials.oracle import Author, Expectation, Oracle, authors
from tilec.trials.shapes import cases

HERE = Path(__file__).resolve().parent
OWN_MANIFEST = HERE / "bundle.toml"
#: What users build, of which the rows called shipped are timed.
SHIPPED_MANIFEST = HERE.parents[1] / "manifests" / "llm.toml"
SHIPPED_KERNELS = ("matmul_float16", "matmul_bfloat16")
MOST_CASES, MOST_ATTEMPTS = 4, 10
#: What the runner takes from tilec, as it is; the packages around them are empty.
SHARED = (
    *("portable/loader.py", "errors.py", "packages.py", "dtypes.py", "spelling.py", "ir/interp/values.py"),
    *("trials/comparison.py", "portable/guarded.py", "portable/nearness.py", "portable/timing.py"),
    *("portable/graphs.py", "portable/devices/base.py"),
    *("portable/devices/gpu.py", "portable/devices/cuda.py", "costs.py", "sizes.py", "capacity.py"),
    *("targets.py", "cpu_bits.py", "families.py", "systems.py"),
)
_SMALL_FLOATS = ("float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu")
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
    parser.add_argument("--kernel", action="append", metavar="GLOB", help="cases of these kernels alone")
    parser.add_argument("--cases", type=int, default=MOST_CASES, help="at most so many of a variant")
    options = parser.parse_args()
    result = build(options.manifest, Path("dist/gpu-library"))
    facts = read_facts(result.report.library)
    chosen = [each for each in facts if any(fnmatch(each.name, glob) for glob in options.kernel or "*")]
    write_bundle(result.report.library, options.out, chosen, authors(options.manifest), options.cases)
    write_sources(options.out / "source")
    if options.manifest == OWN_MANIFEST:
        _compile_launch_cost(result.report.out_dir, options.out)
        _add_shipped(options.out)
    size = sum(file.stat().st_size for file in options.out.rglob("*") if file.is_file())
    print(f"{options.out}: {len(result.spec.kernels)} kernels, {size / 2**20:.1f} MiB")
    print(f"on the machine with the GPU: python3 {options.out}/run.py")


def write_bundle(
    library: Path, out: Path, kernels: Iterable[KernelFacts], known: dict[str, Author], most: int
) -> None:
    """Writes the folder of a built library, with at most ``most`` cases of each variant of ``kernels``.
    ``known``: references and inputs by kernel."""
    blobs = Blobs()
    write_folder(
        library, out, [case for kernel in kernels for case in _cases(kernel, known, blobs, most)], blobs
    )


def write_folder(library: Path, out: Path, found: list[dict[str, Any]], blobs: Blobs) -> None:
    """Writes the folder of a built library; ``found``: of `case_entry`, with arrays in ``blobs``."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    tables = {name: _values_of(name) for name in _SMALL_FLOATS}
    (out / "arrays.bin.gz").write_bytes(gzip.compress(blobs.data, 6, mtime=0))
    name = f"{library.name}.{ABI_VERSION}"  # programs that are linked with it ask for its SONAME
    listed = {"library": name, "others": {}, "tables": tables, "cases": found}
    (out / "cases.json").write_text(json.dumps(listed, indent=1))
    shutil.copy(library, out / name)
    copy_shared(out / "tilec")
    shutil.copytree(HERE / "runner", out, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))


def copy_shared(out: Path) -> None:
    """What the runner takes from tilec, into the folder of its package."""
    for file in SHARED:
        target = out / file
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(Path(tilec.__file__).parent / file, target)
        for package in [parent for parent in target.parents if parent.is_relative_to(out)]:
            (package / "__init__.py").touch()


def write_sources(out: Path) -> None:
    """tilec as a wheel holds it, the C runtime inside of the package."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(tilec.__file__).parent, out / "tilec", ignore=ignored)
    shutil.copytree(runtime_folder(), out / "tilec" / "runtime_c", ignore=ignored, dirs_exist_ok=True)


def _values_of(dtype: str) -> list[float]:
    """What each byte is worth in a type of 8 bits."""
    return [float(value) for value in np.arange(256, dtype=np.uint8).view(numpy_dtype(dtype))]


def _add_shipped(out: Path) -> None:
    """Products of the manifest that users build, as it has them."""
    built = build(SHIPPED_MANIFEST, Path("dist/gpu-shipped"), targets=["sm_90a"], kernels=SHIPPED_KERNELS)
    shutil.copy(built.report.library, out / "shipped.so")
    listed = json.loads((out / "cases.json").read_text())
    listed["others"]["shipped"] = "shipped.so"
    (out / "cases.json").write_text(json.dumps(listed, indent=1))


def _compile_launch_cost(package: Path, out: Path) -> None:
    """The C program beside run.py that times warm calls; it finds the library in its own folder."""
    command = [
        *find_toolchain().driver,
        *("-O2", "-g0", "-std=gnu11", "-I", str(package / "include"), str(HERE / "launch_cost.c")),
        *("-o", str(out / "launch_cost"), str(next(out.glob("*.so.*"))), "-Wl,-rpath,$ORIGIN", "-ldl"),
    ]
    subprocess.run(command, check=True)


def _cases(
    kernel: KernelFacts, known: dict[str, Author], blobs: Blobs, most: int
) -> Iterator[dict[str, Any]]:
    oracle = Oracle(kernel, known.get(kernel.name, Author()))
    for variant in kernel.variants:
        if not parse_target(variant.target).is_cpu:
            yield from islice(_variant_cases(kernel, variant, oracle, blobs), most)


def _variant_cases(
    kernel: KernelFacts, variant: VariantFacts, oracle: Oracle, blobs: Blobs
) -> Iterator[dict[str, Any]]:
    for number, dims in enumerate(islice(cases(kernel, variant, 0), MOST_ATTEMPTS)):
        expected = oracle.expect(variant, dims, number)
        if expected.problem:
            continue
        yield case_entry(kernel, variant, dims, expected, oracle.tolerance(variant), blobs)


def case_entry(
    kernel: KernelFacts,
    variant: VariantFacts,
    dims: Mapping[str, int],
    expected: Expectation,
    tolerance: Tolerance,
    blobs: Blobs,
) -> dict[str, Any]:
    """One call of a variant, and what it should give, for the runner; arrays go to ``blobs``."""
    return {
        "kernel": kernel.name,
        "variant": variant.id,
        "target": variant.target,
        "dims": dict(dims),
        "oracle": expected.oracle,
        "tolerance": vars(tolerance),
        "params": [_param(param, dims, expected, blobs) for param in kernel.params],
    }


def _param(param: Any, dims: Mapping[str, int], expected: Expectation, blobs: Blobs) -> dict[str, Any]:
    """One argument: a scalar's value, or a tensor's layout and where its contents are; what is expected of an
    output comes as ``wide``."""
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
        entry["wide"] = "float32" if lookup(param.dtype).bits < 32 or param.dtype == "float32" else "float64"
        entry["output"] = blobs.add(expected.outputs[param.name].astype(entry["wide"]))
    return entry


if __name__ == "__main__":
    main()
