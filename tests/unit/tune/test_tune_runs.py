"""Whole runs on the CPU, with configs that are wrong, crash or hang."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from faulty_kernels import CRASHES, HANGS, WRONG
from tune_samples import ONE

from tilec.build.processes.attempts import run_all
from tilec.errors import TuneError
from tilec.manifest import Variant, load_manifest
from tilec.portable.runner.journal import Journal
from tilec.tune import Manner, Selection, tune
from tilec.tune.engine import journal_path
from tilec.tune.measure import runs as runs_module
from tilec.tune.measure.candidates import Made, compile_safely

FAULTS = f"fault = [0, {WRONG}, {CRASHES}, {HANGS}]\nblock = [64, 128]\npoints = [1000]\n" + (
    'where = ["block == 64 or fault == 0"]'
)


def crashing(variant: Variant) -> Made:
    """As the compiler, but code that should crash begins with an undefined instruction."""
    made = compile_safely(variant)
    if variant.config.get("fault") != CRASHES:
        return made
    code = bytearray(made.record.image.code)  # type: ignore[union-attr]
    start, size = _text_section(code)
    code[start : start + size] = b"\x0f\x0b" * (size // 2) + b"\x90" * (size % 2)
    record = made.record  # type: ignore[union-attr]
    return replace(made, record=replace(record, image=replace(record.image, code=bytes(code))))


def _text_section(elf: bytearray) -> tuple[int, int]:
    """Offset and size of the first section with code."""
    start, count = int.from_bytes(elf[40:48], "little"), int.from_bytes(elf[60:62], "little")
    for at in range(start, start + 64 * count, 64):
        flags, offset, size = (int.from_bytes(elf[at + o : at + o + 8], "little") for o in (8, 24, 32))
        if flags & 4:
            return offset, size
    raise AssertionError("no code")


def test_configs_that_fail_cost_themselves_alone(
    manifest: Callable[..., Path], backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs_module, "compile_safely", crashing)
    path = manifest(FAULTS, ONE)
    outcome = tune(path, Selection(threads=1), Manner("exhaustive", timeout=2.0), backend=backend)
    (result,) = outcome.results
    outcomes = {(c.get("fault", 0), c["block"]): "" for c in result.about.configs}
    for row in result.rows:
        config = result.about.configs[row.number]
        outcomes[config.get("fault", 0), config["block"]] = f"{row.outcome}: {row.detail}"
    assert outcomes.pop((0, 64)).startswith("ok")
    assert outcomes.pop((0, 128)).startswith("ok")
    assert "wrong result: n=" in outcomes[WRONG, 64]
    assert "sampled elements are wrong" in outcomes[WRONG, 64]
    assert outcomes[CRASHES, 64] == "crash: crashed with SIGILL"
    assert outcomes[HANGS, 64].startswith("timeout: no end within 2")
    assert result.winner is not None
    assert (
        "fault" not in result.about.configs[result.winner] or not result.about.configs[result.winner]["fault"]
    )
    (variant,) = load_manifest(path).variants
    assert variant.config_source.startswith("tuned")
    assert variant.config == dict(result.about.configs[result.winner])


@pytest.mark.slow
def test_a_killed_run_goes_on(manifest: Callable[..., Path]) -> None:
    path = manifest("block = [32, 128]\npoints = [1000]", ONE)
    command = [
        sys.executable,
        "-m",
        "tilec.cli.main",
        "tune",
        str(path),
        "--threads",
        "1",
        "--strategy",
        "exhaustive",
    ]
    environment = {**os.environ, "TILEC_JOBS": "1"}
    first = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    journal = Journal(journal_path(path))
    while not journal.read() and first.poll() is None:
        time.sleep(0.02)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    kept = journal.read()
    with open(journal.path, "ab") as file:
        file.write(b'{"key": "cut of')  # what a kill in the middle of a line leaves
    outcome = tune(path, Selection(threads=1), Manner("exhaustive"), jobs=1)
    (result,) = outcome.results
    assert result.reused == len(kept) >= 1
    records = journal.read()
    assert len({record["key"] for record in records}) == len(records) == len(result.rows)


def test_a_full_disk_is_said_and_loses_nothing(
    manifest: Callable[..., Path], backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = manifest("block = [32, 128]\npoints = [1000]", ONE)
    written: list[int] = []
    real = os.fsync

    def fsync(file: int) -> None:
        written.append(file)
        if len(written) > 1:
            raise OSError(28, "No space left on device")
        real(file)

    monkeypatch.setattr("tilec.portable.runner.journal.os.fsync", fsync)
    with pytest.raises(TuneError, match="cannot be kept") as caught:
        tune(path, Selection(threads=1), Manner("exhaustive"), backend=backend)
    assert "No space left" in caught.value.why
    assert not path.with_suffix(".tuned.toml").exists()
    assert len(journal_path(path).read_bytes().splitlines()) == 1
    json.loads(journal_path(path).read_bytes())


def test_a_compile_process_that_dies_costs_its_config_alone() -> None:
    from tilec.tune.measure.backends import Local

    backend, found = Local((), jobs=2), {}

    def done(number: int, made: int | None) -> bool:
        found[number] = made
        return True

    try:
        tasks = [(number, number) for number in range(6)]
        run_all(backend.compilers, _dies_at_three, tasks, 2, done)  # type: ignore[arg-type]
    finally:
        backend.close()
    assert found == {0: 0, 1: 2, 2: 4, 3: None, 4: 8, 5: 10}


def _dies_at_three(number: int) -> int:
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return 2 * number


SCRIPT = """
from tilec.tune.measure.backends import Local
from tilec.build.processes.attempts import run_all

print("once", flush=True)
backend, found = Local((), jobs=2), {}
tasks = [(n, -n) for n in range(3)]
run_all(backend.compilers, abs, tasks, 2, lambda n, made: found.update({n: made}) or True)
backend.close()
print(sorted(found.values()))
"""


@pytest.mark.slow
def test_a_script_needs_no_guard(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, str(tmp_path / "script.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.splitlines() == ["once", "[0, 1, 2]"]
