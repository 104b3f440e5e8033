"""Builds where ziglang is not installed: `cc` serves, end to end."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tilec.elf import parse_library
from tilec.package.library.inspect import read_library
from tilec.targets import CPU_LEVELS, native_host, parse_target
from tilec.verify.audit import audit_library

ROOT = Path(__file__).resolve().parents[3]
LEVEL = next(name for name in CPU_LEVELS if parse_target(name).arch == native_host().arch)
MANIFEST = f"""\
edition = 1

[package]
name = "plain"

[targets]
cpu = ["{LEVEL}"]

[[kernel]]
name = "scale_add"
source = "{ROOT}/examples/kernels/elementwise.py:scale_add"
dims = {{ n = "dynamic" }}
"""
CHILD = """
import importlib.util
import sys
import numpy as np
import tilec
from tilec.build.library import build

assert importlib.util.find_spec("ziglang") is None
result = build("plain.toml", "out", jobs=1)
print(*result.warnings, sep="\\n")
kernel = tilec.load("out").scale_add
print(kernel)
sys.path.insert(0, "tests_here")
import inprocess_kernels
x = np.arange(100, dtype=np.float32)
assert (inprocess_kernels.axpy(100)(x, 2.0) == 2 * x).all()
"""


@pytest.fixture
def without_zig(tmp_path: Path) -> dict[str, str]:
    """The environment of a Python that has every installed package but ziglang."""
    if shutil.which("cc") is None or shutil.which("ar") is None:
        pytest.skip("there is no system compiler")
    packages = tmp_path / "packages"
    packages.mkdir()
    for folder in [Path(each) for each in sys.path if each.endswith("site-packages")]:
        for entry in folder.iterdir():
            if not entry.name.startswith(("ziglang", "tilec")) and not (packages / entry.name).exists():
                (packages / entry.name).symlink_to(entry)
    paths = os.pathsep.join([str(packages), str(ROOT)])
    own = {"PYTHONPATH": paths, "TILEC_CACHE_DIR": str(tmp_path / "cache"), "TILEC_TARGET": "cpu"}
    return {**os.environ, **own}


def test_cc_builds_and_the_library_passes_its_audit(tmp_path: Path, without_zig: dict[str, str]) -> None:
    (tmp_path / "plain.toml").write_text(MANIFEST)
    (tmp_path / "tests_here").symlink_to(ROOT / "tests" / "unit" / "inprocess")
    done = subprocess.run(
        [sys.executable, "-S", "-c", CHILD],
        env=without_zig,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "a system compiler links it against the glibc of this machine" in done.stdout
    library = tmp_path / "out" / "lib" / "libplain.so"
    info = read_library(library)
    assert set(info.metadata["tools"]) == {"tilec", "tvm", "cc"}
    assert [each for each in audit_library(library) if each.problem] == []
    assert parse_library(library.read_bytes()).constructors == ()
