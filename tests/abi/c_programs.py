"""Compiles the C programs of these tests against a package."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from linked import link

from tilec.package.write import BuildReport
from tilec.systems import WINDOWS
from tilec.targets import Host

PROGRAMS = Path(__file__).parent / "programs"
WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")


def compile_program(
    package: BuildReport, library: Path | None, source: str, flags: Sequence[str], folder: Path, host: Host
) -> Path:
    """A program of tests/abi/programs, compiled in ``folder`` with every warning an error and linked with
    ``library`` (shared, static or none)."""
    out = folder / (Path(source).stem + (".exe" if host.system is WINDOWS else ""))
    where = ("-I", package.out_dir / "include", "-o", out)
    linked = (PROGRAMS / source, "-x", "none", *([] if library is None else [library]))
    system = (f"-Wl,-rpath,{package.out_dir / 'lib'}", "-lpthread", "-ldl", "-lm")
    link(*flags, *WARNINGS, *where, *linked, *(() if host.system is WINDOWS else system), host=host)
    return out
