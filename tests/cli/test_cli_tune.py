from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

KERNELS = Path(__file__).parents[1] / "unit" / "tune" / "faulty_kernels.py"
MANIFEST = f"""\
edition = 1

[package]
name = "demo"

[targets]
cpu = ["x86-64-v2"]

[[kernel]]
name = "twice"
source = "{KERNELS}:twice"
dims = {{ n = ["1..64", "dynamic"] }}
config = {{ block = 64 }}
reference = "{KERNELS}:twice_reference"

[kernel.tune]
block = [32, 64, 128]
fault = [0, 1]
where = ["block <= 64 or fault == 0"]
points = [17, 1000]
"""


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    path = tmp_path / "demo.toml"
    path.write_text(MANIFEST)
    return path


def test_a_dry_run_says_what_would_be_done(
    tilec: Callable, manifest: Path, golden: Callable[..., None]
) -> None:
    outcome = tilec("tune", manifest, "--dry-run", "-j", "1")
    assert outcome.code == 0, outcome.err
    golden(outcome.out)
    assert not manifest.with_suffix(".tuned.toml").exists()


def test_a_dry_run_says_why_configs_are_left_out(tilec: Callable, manifest: Path) -> None:
    manifest.write_text(manifest.read_text().replace("[kernel.tune]\n", "[kernel.tune]\nsplit_k = [0, -1]\n"))
    outcome = tilec("tune", manifest, "--dry-run", "-j", "1")
    assert ": config value split_k = 0 cannot be used" in outcome.out
    outcome = tilec("tune", manifest, "--threads", "1", "--trials", "1", "-j", "1")
    assert outcome.code == 0, outcome.err
    assert outcome.err.count("configs left out: config value split_k = 0 cannot be used") == 1


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_what_no_config_mends_is_an_error(tilec: Callable, manifest: Path, more: tuple[str, ...]) -> None:
    manifest.write_text(manifest.read_text().replace("[kernel.tune]\n", "[kernel.tune]\nblok = [1]\n"))
    outcome = tilec("tune", manifest, *more, "-j", "1")
    assert outcome.code == 2
    assert "error: kernel twice has no parameter blok" in outcome.err
    assert "did you mean block?" in outcome.err


def test_values_to_try_of_another_kind_are_said_once(tilec: Callable, manifest: Path) -> None:
    text = manifest.read_text().replace("fault = [0, 1]", 'fault = [0, "1"]')
    manifest.write_text(text.replace("block <= 64 or fault == 0", "block == 32"))
    told = 'demo.toml:18: kernel[0].tune.fault: fault = "1" is among the values to try, where twice has'
    assert tilec("tune", manifest, "--dry-run", "-j", "1").err.count(told) == 1
    tuned = tilec("tune", manifest, "--threads", "1", "--trials", "1", "-j", "1")
    assert tuned.err.count(told) == 1


def test_a_run_is_remembered_and_built(tilec: Callable, manifest: Path) -> None:
    outcome = tilec("tune", manifest, "--threads", "1", "--json", "--csv", "all.csv", "-j", "1")
    assert outcome.code == 0, outcome.err
    entries = json.loads(outcome.out)
    assert [entry["dims"] for entry in entries] == [{"n": "1..64"}, {"n": "dynamic"}]
    assert "x the default" in outcome.err
    assert len(Path("all.csv").read_text().splitlines()) == 1 + 2 * 6
    shown = tilec("tune", manifest, "--status")
    assert "2 tuned" in shown.out
    assert "1 thread, " in shown.out
    built = tilec("build", manifest, "-o", "out", "-j", "1")
    assert built.code == 0, built.err
    assert f"tuned on {entries[0]['device']}" in tilec("inspect", "out").out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--budget", "soon"], "no time"),
        (["--part", "3/2"], "no part"),
        (["--strategy", "luck"], "luck"),
        (["--devices", "tpu"], "no device"),
        (["--kernel", "thrice"], "no kernel matches"),
    ],
)
def test_wrong_usage_of_tune_is_2(tilec: Callable, manifest: Path, arguments: list[str], said: str) -> None:
    outcome = tilec("tune", manifest, *arguments)
    assert (outcome.code, said in outcome.err) == (2, True), outcome.err


def test_a_missing_gpu_is_3(tilec: Callable, manifest: Path) -> None:
    outcome = tilec("tune", manifest, "--devices", "cuda:7")
    assert outcome.code == 3
    assert "--export" in outcome.err
