"""Compiles the C programs of these tests against a package."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from tilec.codegen.toolchain import find_toolchain
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
    command = [
        *(*find_toolchain(host).driver, *flags, *WARNINGS, "-O1", "-g0"),
        *("-I", str(package.out_dir / "include"), "-o", str(out)),
        *(str(PROGRAMS / source), "-x", "none", *([] if library is None else [str(library)])),
        *(
            ()
            if host.system is WINDOWS
            else (f"-Wl,-rpath,{package.out_dir / 'lib'}", "-lpthread", "-ldl", "-lm")
        ),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out
