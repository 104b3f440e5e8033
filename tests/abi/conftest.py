"""A package built once, and C programs compiled against it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from samples import sample_spec

from tilec.codegen.toolchain import find_toolchain
from tilec.package.write import BuildReport, write_package
from tilec.targets import Host, native_host

PROGRAMS = Path(__file__).parent / "programs"
WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")


@pytest.fixture(scope="session")
def sample(tmp_path_factory: pytest.TempPathFactory) -> BuildReport:
    """The sample library for this machine, with its archive."""
    return write_package(sample_spec(native_host()), tmp_path_factory.mktemp("sample"), static=True)


def compile_program(
    package: BuildReport, library: Path, source: str, flags: Sequence[str], folder: Path, host: Host
) -> Path:
    """A program of tests/abi/programs, compiled in ``folder`` with every warning an error and linked with
    ``library`` (shared or static)."""
    out = folder / Path(source).stem
    command = [
        *(*find_toolchain(host).driver, *flags, *WARNINGS, "-O1", "-g0"),
        *("-I", str(package.out_dir / "include"), "-o", str(out)),
        *(str(PROGRAMS / source), "-x", "none", str(library)),
        *(f"-Wl,-rpath,{package.out_dir / 'lib'}", "-lpthread", "-ldl", "-lm"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture
def program(sample: BuildReport, tmp_path: Path) -> Callable[..., Path]:
    """``program("typed.c", "-std=c11")``: a program linked with the sample library; ``static=True`` links the
    archive."""

    def build(source: str, *flags: str, static: bool = False) -> Path:
        library = sample.archive if static and sample.archive else sample.library
        return compile_program(sample, library, source, flags, tmp_path, native_host())

    return build
