"""`tilec tune --schedules`: from a kernel with parameters to a library that chooses by the shape."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tilec.manifest import load_manifest
from tilec.targets import native_target

KERNELS = Path(__file__).parents[1] / "unit" / "build" / "chosen_kernels.py"
MANIFEST = f"""\
edition = 1

[package]
name = "demo"

[targets]
cpu = ["{native_target().name}"]

[[kernel]]
name = "sums"
source = "{KERNELS}:sums"
dims = {{ M = "dynamic", N = "dynamic" }}

[kernel.tune]
space = "auto"
columns = [32, 128]
where = ["rows <= 8"]
"""
SWEEP = ("--schedules", "sums.schedules.toml", "--random", "12", "--trials", "3")
OVERRIDE = '[[kernel.override]]\nschedules = "sums.schedules.toml:sums"\n'

EXPLAINING = "from tilec.portable import loader; print(loader.load('out').sums.explain(M=7, N=64))"


@pytest.fixture
def manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "demo.toml"
    path.write_text(MANIFEST)
    monkeypatch.chdir(tmp_path)
    return path


def test_a_sweep_makes_schedules_that_build(tilec: Callable, manifest: Path) -> None:
    outcome = tilec("tune", manifest, *SWEEP, "--threads", "1", "-j", "1")
    assert outcome.code == 0, outcome.err
    assert "held out" in outcome.out
    assert 'schedules = "sums.schedules.toml:sums"' in outcome.out
    assert not manifest.with_suffix(".tuned.toml").exists()
    manifest.write_text(MANIFEST + OVERRIDE)
    variants = load_manifest(manifest).variants
    assert variants
    assert all(one.is_schedule and one.config.get("columns", 128) in (32, 128) for one in variants)
    assert tilec("build", manifest, "-o", "out", "-j", "1").code == 0
    shown = tilec("inspect", "out", "--kernel", "sums", "--shape", "M=100,N=1000")
    assert "taken" in shown.out
    plain = tilec("tune", manifest, "--dry-run")
    assert "--schedules FILE" in plain.err


@pytest.mark.slow
def test_a_folder_measures_elsewhere(tilec: Callable, manifest: Path) -> None:
    made = tilec("tune", manifest, *SWEEP, "--export", "there", "-j", "1")
    assert made.code == 0, made.err
    there = [sys.executable, "-I", "-S", "there/run.py", "--device", "cpu", "--threads", "1"]
    done = subprocess.run(there, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    records = [json.loads(line) for line in Path("there/results.jsonl").read_text().splitlines()]
    assert not any("finals" in record for record in records)
    merged = tilec("tune", manifest, "--schedules", "made.toml", "--merge", "there/results.jsonl")
    assert merged.code == 0, merged.err
    assert "[[sums]]" in Path("made.toml").read_text()
    assert not manifest.with_suffix(".tuned.toml").exists()


@pytest.mark.slow
def test_a_models_shapes_may_be_swept(tilec: Callable, manifest: Path) -> None:
    calls = [{"kernel": "sums", "dims": {"M": 8 * at, "N": 64 * at}} for at in range(1, 5)]
    Path("shapes.json").write_text(json.dumps({"calls": calls}))
    sweep = ("--schedules", "made.toml", "--shapes", "shapes.json", "--trials", "2")
    more = tilec("tune", manifest, *sweep, "--random", "8", "--threads", "1", "-j", "1")
    assert more.code == 0, more.err


def test_too_few_shapes_are_told_before_any_is_timed(tilec: Callable, manifest: Path) -> None:
    few = tilec("tune", manifest, *SWEEP, "--random", "9", "--threads", "1", "-j", "1")
    assert "too few shapes of sums on" in few.err
    assert "there are 9, and every fourth is held out" in few.err
    assert "take 10 or more, with --random or --shapes" in few.err


def test_options_of_a_sweep_stand_together(tilec: Callable, manifest: Path) -> None:
    assert "--random belongs to --schedules" in tilec("tune", manifest, "--random", "3").err


def test_inspect_says_what_a_call_by_so_many_threads_takes(
    tilec: Callable, manifest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedules = """[[kernel.override]]
schedules = [{ config = { rows = 2 }, cost = "waves(6)" }, { config = { rows = 4 }, cost = "4" }]
"""
    manifest.write_text(MANIFEST + schedules)
    assert tilec("build", manifest, "-o", "out", "-j", "1").code == 0
    question = ("inspect", "out", "--kernel", "sums", "--shape", "M=7,N=64")
    for threads, costs in ((1, "taken, 4.0 us"), (2, "taken, 3.0 us")):
        monkeypatch.setenv("TILEC_NUM_THREADS", str(threads))
        shown = tilec(*question).out
        said = subprocess.run([sys.executable, "-c", EXPLAINING], capture_output=True, text=True, check=True)
        assert costs in shown
        assert [line.strip() for line in shown.splitlines()[1:]] == said.stdout.strip().splitlines()
        assert costs in tilec(*question, "--threads", str(threads), "--target", native_target().name).out
    monkeypatch.delenv("TILEC_NUM_THREADS")
    cores = len(os.sched_getaffinity(0))
    assert tilec(*question).out == tilec(*question, "--threads", str(cores)).out
    assert "--threads says where" in tilec("inspect", "out", "--threads", "2").err


def test_explain_says_which_schedule_a_call_takes(tilec: Callable, manifest: Path) -> None:
    schedules = """[[kernel.override]]
schedules = [{ config = { rows = 2 }, cost = "M" }, { config = { rows = 4 }, cost = "100" }]
"""
    manifest.write_text(MANIFEST + schedules)
    few = tilec("explain", manifest, "sums", "--shape", "M=7,N=64").out
    assert "schedule: rows=2\ncost, in us: M\n7.0 us here, the others 100.0\n" in few
    many = tilec("explain", manifest, "sums", "--shape", "M=700,N=64").out
    assert "schedule: rows=4\ncost, in us: 100\n100.0 us here, the others 700.0\n" in many
    assert "sums has the dims M, N" in tilec("explain", manifest, "sums", "--shape", "M=7").err


def test_explain_knows_what_a_processor_takes(tilec: Callable, manifest: Path) -> None:
    schedules = """[[kernel.override]]
schedules = [{ config = { rows = 2 }, cost = "on(zen4, M, 200)" }, { config = { rows = 4 }, cost = "100" }]
"""
    manifest.write_text(MANIFEST.replace(native_target().name, "x86-64-v4") + schedules)
    question = ("explain", manifest, "sums", "--shape", "M=7,N=64", "--target")
    assert "rows=4\ncost, in us: 100\n100.0 us here, the others 200.0\n" in tilec(*question, "x86-64-v4").out
    answer = tilec(*question, "x86-64-v4+zen4").out
    assert "rows=2\ncost, in us: on(zen4, M, 200)\n7.0 us here, the others 100.0\n" in answer
