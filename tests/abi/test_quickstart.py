"""The quickstart manifest on every level of this machine and, under qemu, on aarch64: its programs in C and,
on this machine, in C++ against NumPy."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from linked import link

from tilec.build import build
from tilec.targets import Host, native_host, parse_host, parse_target, runs_here

ROOT = Path(__file__).parents[2]
MANIFEST = ROOT / "manifests" / "quickstart.toml"
TARGETS = {"x86_64": ("x86-64-v2", "x86-64-v3", "x86-64-v4"), "aarch64": ("aarch64",)}
SHAPES = [(1000, 5, 33, 70), (1, 37, 50, 64), (65, 130, 17, 1)]
SYSTEM = Path("/usr/aarch64-linux-gnu")


def build_program(host: Host, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The quickstart library for ``host`` and examples/c/quickstart.c linked with it."""
    monkeypatch.setenv("TILEC_CACHE_DIR", str(folder / "cache"))
    text = MANIFEST.read_text().replace('"../examples', f'"{ROOT}/examples')
    lines = [_for_host(line, host) for line in text.splitlines()]
    (folder / "quickstart.toml").write_text("\n".join(lines))
    result = build(folder / "quickstart.toml", folder / "package", jobs=2)
    prefix, program = result.report.out_dir, folder / "quickstart"
    compiled = (f"-I{prefix / 'include'}", ROOT / "examples/c/quickstart.c")
    link(*compiled, result.report.library, f"-Wl,-rpath,{prefix / 'lib'}", "-o", program, host=host)
    return program


def cpp_program(folder: Path) -> list[Path]:
    """examples/cpp/quickstart.cpp with the package of `build_program`; none without a compiler."""
    compiler, prefix, program = shutil.which("c++"), folder / "package", folder / "quickstart_cpp"
    if compiler is None:
        return []
    flags = ["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{prefix / 'include'}"]
    link = [f"-L{prefix / 'lib'}", "-lquickstart", f"-Wl,-rpath,{prefix / 'lib'}"]
    source = ROOT / "examples/cpp/quickstart.cpp"
    subprocess.run([compiler, *flags, source, *link, "-o", program], check=True)
    return [program]


def _for_host(line: str, host: Host) -> str:
    if line.startswith("cpu ="):
        return f"cpu = {list(TARGETS[host.arch])}".replace("'", '"')
    return f'host = "{host.triple}"' if line.startswith("host =") else line


def check(command: Sequence[str | Path], shape: tuple[int, int, int, int], **environment: str) -> None:
    """Runs the program on one shape and compares what it wrote."""
    n, m, columns, k = shape
    rng = np.random.default_rng(n)
    x, b, left, right = (rng.standard_normal(size, dtype=np.float32) for size in (n, n, m * k, k * columns))
    done = subprocess.run(
        [*command, *map(str, shape)],
        input=b"".join(array.tobytes() for array in (x, b, left, right)),
        capture_output=True,
        check=False,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr.decode()
    made = np.frombuffer(done.stdout, np.float32)
    np.testing.assert_allclose(made[:n], 2 * x + b, rtol=1e-6, atol=1e-6)
    wanted = left.reshape(m, k).astype(np.float64) @ right.reshape(k, columns)
    np.testing.assert_allclose(made[n:].reshape(m, columns), wanted, rtol=1e-4, atol=1e-4)


def test_every_level_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = build_program(native_host(), tmp_path, monkeypatch)
    programs = [program, *cpp_program(tmp_path)]
    levels = [name for name in TARGETS[native_host().arch] if runs_here(parse_target(name))]
    assert levels
    for level in levels:
        for shape, each in itertools.product(SHAPES, programs):
            check([each], shape, TILEC_CPU=level)


@pytest.mark.skipif(
    shutil.which("qemu-aarch64") is None, reason="qemu-aarch64 (package qemu-user) is not installed"
)
@pytest.mark.skipif(not SYSTEM.exists(), reason=f"{SYSTEM} (package libc6-arm64-cross) is not installed")
def test_aarch64_under_qemu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = build_program(parse_host("aarch64-linux-gnu.2.17"), tmp_path, monkeypatch)
    for level in TARGETS["aarch64"]:
        emulator = ["qemu-aarch64", "-L", SYSTEM, "-E", f"TILEC_CPU={level}"]
        for shape in SHAPES:
            check([*emulator, program], shape)
