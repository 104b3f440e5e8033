"""A machine that TVM takes for one with a GPU: libraries that answer for the driver and the CUDA runtime, and
compilers that write down that they were asked."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from linked import link

from tilec.elf import parse_library

_ANSWERS = {
    "cudaGetDeviceCount": "int cudaGetDeviceCount(int *count) { *count = 1; return 0; }",
    "cudaDeviceGetAttribute": "int cudaDeviceGetAttribute(int *value) { *value = 9; return 0; }",
    "cudaGetErrorName": 'const char *cudaGetErrorName(int code) { (void)code; return "none"; }',
    "cudaGetErrorString": 'const char *cudaGetErrorString(int code) { (void)code; return "none"; }',
}
_NVCC = '#!/bin/sh\necho "nvcc $*" >> "$FOREIGN_COMPILERS"\nexit 1\n'
_BINDINGS = """
import os
with open(os.environ["FOREIGN_COMPILERS"], "a") as asked:
    asked.write("cuda-bindings\\n")
def __getattr__(name):
    raise RuntimeError(f"the stand-in was asked for {name}")
"""


def gpu_runtime() -> Path | None:
    """TVM's library for GPUs, which it loads where there is a driver; None where it has none."""
    spec = importlib.util.find_spec("tvm")
    assert spec is not None
    assert spec.origin is not None
    library = Path(spec.origin).parent / "lib" / "libtvm_runtime_cuda.so"
    return library if library.exists() else None


def stand_in(folder: Path, runtime: Path) -> dict[str, str]:
    """Builds the stand-ins in ``folder`` for what the library ``runtime`` needs; the environment of a process
    that meets them. Those who compile append to the file ``asked`` there."""
    wanted = sorted(name for name in parse_library(runtime.read_bytes()).imports if name.startswith("cu"))
    _library(folder, "libcuda.so.1", [name for name in wanted if not name.startswith("cuda")])
    _library(folder, "libcudart.so.13", [name for name in wanted if name.startswith("cuda")])
    bindings = folder / "cuda" / "bindings"
    bindings.mkdir(parents=True)
    for package in (bindings.parent, bindings):
        (package / "__init__.py").touch()
    (bindings / "driver.py").write_text("class CUstream: ...\n")  # TVM's arguments may be of this class
    (bindings / "nvrtc.py").write_text(_BINDINGS)
    nvcc = folder / "nvcc"
    nvcc.write_text(_NVCC)
    nvcc.chmod(0o755)
    first = {"LD_LIBRARY_PATH": folder, "PYTHONPATH": folder, "PATH": folder}
    extended = {
        name: os.pathsep.join([str(value), os.environ.get(name, "")]) for name, value in first.items()
    }
    return {**os.environ, **extended, "FOREIGN_COMPILERS": str(folder / "asked")}


def _library(folder: Path, name: str, functions: list[str]) -> None:
    """A shared library of functions, each of the version that is called as the library."""
    source, versions = folder / f"{name}.c", folder / f"{name}.map"
    source.write_text(
        "\n".join(_ANSWERS.get(each, f"int {each}(void) {{ return 0; }}") for each in functions)
    )
    versions.write_text(f"{name} {{ global: cu*; }};")
    flags = ("-shared", "-fPIC", f"-Wl,-soname,{name}", f"-Wl,--version-script={versions}")
    link(*flags, source, "-o", folder / name)
