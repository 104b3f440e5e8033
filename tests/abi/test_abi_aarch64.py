"""An aarch64 library, cross-linked by zig, run by qemu's user mode where that is installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from c_programs import compile_program
from samples import sample_spec

from tilec.package.write import BuildReport, write_package
from tilec.targets import parse_host

QEMU = shutil.which("qemu-aarch64")
SYSTEM = Path("/usr/aarch64-linux-gnu")
HOST = parse_host("aarch64-linux-gnu.2.17")

pytestmark = [
    pytest.mark.skipif(QEMU is None, reason="qemu-aarch64 (package qemu-user) is not installed"),
    pytest.mark.skipif(not SYSTEM.exists(), reason=f"{SYSTEM} (package libc6-arm64-cross) is not installed"),
]


@pytest.fixture(scope="module")
def cross(tmp_path_factory: pytest.TempPathFactory) -> BuildReport:
    return write_package(sample_spec(HOST), tmp_path_factory.mktemp("cross"))


def run_emulated(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Runs a program; again, twice at most, where the emulator itself breaks off: starting several threads at
    once sometimes fails an assertion of its own, which names one of its source files."""
    for _ in range(3):
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        if "ERROR:../../" not in done.stderr:
            break
    return done


@pytest.mark.parametrize(("source", "standard"), [("typed.c", "-std=c11"), ("threads.c", "-std=gnu11")])
def test_programs_run(cross: BuildReport, tmp_path: Path, source: str, standard: str) -> None:
    made = compile_program(cross, cross.library, source, (standard,), tmp_path, HOST)
    command = [QEMU, "-L", SYSTEM, "-E", "TILEC_NUM_THREADS=3", made]
    done = run_emulated(command)
    assert (done.stdout, done.returncode) == ("ok\n", 0), done.stderr
