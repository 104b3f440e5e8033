"""Instrumented builds for the tests of abuse: the sample libraries by a compiler with sanitizers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"
ADDRESS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
_CLANGS = ("clang", *(f"clang-{version}" for version in range(22, 13, -1)))
_BUILD = """
import sys
from pathlib import Path
from cuda_samples import cuda_spec
from samples import sample_spec
from tilec.package.write import write_package
from tilec.targets import native_host
specs = {"sample": sample_spec, "gpu_sample": cuda_spec}
for name in sys.argv[3:]:
    write_package(specs[name](native_host()), Path(sys.argv[1]) / name, static=sys.argv[2] == "True")
"""


def check(command: Sequence[str | Path], env: dict[str, str] | None = None, timeout: float = 120) -> str:
    """What a command prints; the test fails with the end of its errors where it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout, env=env)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout + done.stderr


def build_libraries(folder: Path, compiler: Sequence[str], *names: str, static: bool = False) -> None:
    """Packages, of ``sample`` and ``gpu_sample``, below ``folder``, with their kernels by ``compiler`` too.

    In a process of its own, since compilers are remembered."""
    paths = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "TILEC_CC": " ".join(compiler), "PYTHONPATH": paths}
    check([sys.executable, "-c", _BUILD, str(folder), str(static), *names], env)


def works(compiler: Sequence[str], folder: Path, source: str, prefix: Sequence[str] = ()) -> bool:
    """Whether a program of ``compiler`` can be made and run here."""
    (folder / "probe.c").write_text(source)
    made = [*compiler, str(folder / "probe.c"), "-o", str(folder / "probe")]
    if subprocess.run(made, capture_output=True, check=False).returncode != 0:
        return False
    run = [*prefix, str(folder / "probe"), "-runs=0"]
    return subprocess.run(run, capture_output=True, check=False).returncode == 0


def find_libfuzzer(folder: Path) -> tuple[str, ...] | None:
    """A clang that has libFuzzer, with the flags of a fuzz target."""
    source = "int LLVMFuzzerTestOneInput(const void *data, unsigned long size) { return !data && size; }\n"
    for name in _CLANGS:
        path = shutil.which(name)
        if path and works((path, "-fsanitize=fuzzer", *ADDRESS), folder, source):
            return (path, *ADDRESS)
    return None
