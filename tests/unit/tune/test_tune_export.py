"""Exported folders: run by a Python without tilec, interrupted, merged in any order."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from faulty_kernels import WRONG
from tune_samples import HEAD, KERNELS, ONE, TWICE

from tilec.errors import InputError, PackageError, SourceError, TuneError
from tilec.manifest import load_manifest
from tilec.manifest.tuned import read_tuned
from tilec.portable.runner.journal import Journal
from tilec.tune.export import Part, export
from tilec.tune.merge import merge, merged_path
from tilec.tune.status import status

TUNE = f"block = [32, 64]\nfault = [0, {WRONG}]\npoints = [17, 1000]\n"


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of two variants."""
    base = tmp_path_factory.mktemp("export")
    (base / "demo.toml").write_text(HEAD + TWICE + "[kernel.tune]\n" + TUNE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TILEC_CACHE_DIR", str(base / "cache"))
        export(base / "demo.toml", base / "out", jobs=1)
    return base / "out"


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Runs the program without this environment's packages."""
    command = [
        sys.executable,
        "-I",
        "-S",
        str(folder / "run.py"),
        "--threads",
        "1",
        *options,
    ]
    return subprocess.run(command, capture_output=True, text=True, cwd="/", check=False)


def records(path: Path) -> list[dict[str, Any]]:
    return Journal(path).read()


def test_run_needs_python_alone_and_goes_on(exported: Path, tmp_path: Path) -> None:
    folder, results = tmp_path / "there", tmp_path / "results.jsonl"
    shutil.copytree(exported, folder)
    assert run(folder, "--results", str(results), "--seconds", "0").returncode == 4
    first = run(folder, "--results", str(results), "--only", "n=1..64")
    assert first.returncode == 0, first.stderr
    assert "best" in first.stdout
    assert "wrong result" in first.stdout
    kept = records(results)
    done = run(folder, "--results", str(results))
    assert done.returncode == 0, done.stderr
    after = records(results)
    assert after[: len(kept)] == kept
    measured = [(one["problem"], one["number"]) for one in after if "number" in one]
    assert len(set(measured)) == len(measured) == 8
    outcomes = {one["outcome"] for one in after if "number" in one}
    assert outcomes == {"ok", "wrong result"}


def test_run_says_that_a_device_is_missing(exported: Path, tmp_path: Path) -> None:
    missing = subprocess.run(
        [sys.executable, str(exported / "run.py"), "--results", str(tmp_path / "r"), "--device", "cuda:7"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert missing.returncode == 3
    assert "cuda:7 cannot be used" in missing.stderr


def test_run_leaves_out_what_is_for_other_devices(exported: Path, tmp_path: Path) -> None:
    shutil.copytree(exported, tmp_path / "there")
    file = tmp_path / "there" / "export.json"
    described = json.loads(file.read_text())
    assert [one["device"] for one in described["problems"]] == ["cpu", "cpu"]
    described["problems"][1]["device"] = "cuda:0"
    file.write_text(json.dumps(described))
    done = run(tmp_path / "there", "--seconds", "0")
    assert "time is up with 1 variant left" in done.stdout
    assert "None" not in done.stdout


def test_a_folder_that_is_not_empty_is_refused(manifest: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "file").touch()
    with pytest.raises(TuneError, match="not empty"):
        export(manifest(TUNE), tmp_path / "out")
    with pytest.raises(PackageError, match="cannot be written"):
        export(manifest(TUNE), tmp_path / "out" / "file" / "deeper")


def result_file(path: Path, kernel: str, latencies: dict[int, float], **more: Any) -> Path:
    """What a runner would write of a variant with configs block = 64, 32, 128."""
    about = {
        "id": f"{kernel} x86-64-v2 n=dynamic", "kernel": kernel, "target": "x86-64-v2",
        "dims": {"n": "dynamic"}, "source_sha256": more.get("source", ""),
        "points": [{"text": "n=1000", "weight": 1, "flops": 0.0, "dtype": "", "bytes": 8000.0}],
        "configs": [{"block": 64}, {"block": 32}, {"block": 128}], "incumbent": 0, "weighted": False,
        "size": 3, "pruned": [], "predicted": {}, "compiler": "tvm",
    }  # fmt: skip
    device = {
        "name": more.get("device", "a CPU"),
        "driver": None,
        "cores": 2,
        "clock_khz": 1,
        "cache_bytes": 1,
    }
    origin = {
        "run": more.get("run", "1"), "created": "2026-01-31T10:00:00", "device": device, "threads": 1,
        "problem": about["id"],
    }  # fmt: skip
    lines = [{**origin, "about": about}]
    for number, us in latencies.items():
        lines.append(
            {**origin, "number": number, "outcome": "ok", "points": [us], "detail": "", "seconds": number}
        )
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


TWO = ONE + ONE.replace('name = "twice"', 'name = "again"')


def merged(base: Path, files: list[Path], one_by_one: bool) -> bytes:
    """The tuned file after a merge from nothing."""
    path = base / "demo.toml"
    path.with_suffix(".tuned.toml").unlink(missing_ok=True)
    merged_path(path).unlink(missing_ok=True)
    for group in [[file] for file in files] if one_by_one else [files]:
        merge(path, group)
    return path.with_suffix(".tuned.toml").read_bytes()


def test_merges_in_any_order_give_the_same_bytes(manifest: Callable[..., Path], tmp_path: Path) -> None:
    manifest("block = [32, 64, 128]", TWO)
    files = [
        result_file(tmp_path / "a", "twice", {0: 5.0, 1: 4.0}),
        result_file(tmp_path / "b", "twice", {2: 3.0}),  # the rest of the same run, of another job
        result_file(tmp_path / "c", "twice", {0: 4.0, 1: 3.5}, run="2", device="another CPU"),
        result_file(tmp_path / "d", "again", {0: 2.0, 1: 2.0}, run="3"),
    ]
    texts = {
        merged(tmp_path, order, one_by_one)
        for order in (files, files[::-1], files[2:] + files[:2])
        for one_by_one in (False, True)
    }
    assert len(texts) == 1
    found = {entry.kernel: entry for entry in read_tuned(tmp_path / "demo.toml").entries}
    assert (found["twice"].config, found["twice"].latency_us) == ({"block": 128}, 3.0)
    assert found["again"].config == {"block": 64}  # no gain: the manifest's own stays


def test_what_was_measured_before_the_source_changed_is_stale(
    manifest: Callable[..., Path], tmp_path: Path
) -> None:
    from tilec.manifest.sources import source_sha256

    path = manifest("block = [32, 64, 128]", ONE)
    old = result_file(tmp_path / "a", "twice", {0: 5.0, 1: 1.0}, source="old")
    merge(path, [old])
    assert [one.state for one in status(path)] == ["stale"]
    (warning,) = load_manifest(path).warnings
    assert "is stale" in warning
    fresh = source_sha256(f"{KERNELS}:twice", tmp_path)
    merge(path, [result_file(tmp_path / "b", "twice", {0: 5.0, 2: 4.0}, source=fresh, run="2")])
    assert [one.state for one in status(path)] == ["tuned"]
    assert read_tuned(path).entries[0].config == {"block": 128}
    assert load_manifest(path).warnings == ()


def test_files_of_something_else_are_refused(manifest: Callable[..., Path], tmp_path: Path) -> None:
    path = manifest("block = [32]", ONE)
    (tmp_path / "x").write_text("{}\n")
    with pytest.raises(InputError, match="has no results"):
        merge(path, [tmp_path / "x"])
    with pytest.raises(InputError, match="other kernels"):
        merge(path, [result_file(tmp_path / "y", "thrice", {0: 1.0})])
    with pytest.raises(InputError, match="cannot read"):
        merge(path, [tmp_path / "absent"])


def test_parts_deal_the_variants(manifest: Callable[..., Path], tmp_path: Path) -> None:
    path = manifest("block = [32]")
    ids = []
    for index in (0, 1):
        export(path, tmp_path / f"part_{index}", jobs=1, part=Part(index, 2))
        described = json.loads((tmp_path / f"part_{index}" / "export.json").read_text())
        ids += [problem["about"]["id"] for problem in described["problems"]]
    assert ids == ["twice x86-64-v2 n=1..64", "twice x86-64-v2 n=dynamic"]


def test_a_source_that_no_config_mends_is_what_an_export_says(tmp_path: Path) -> None:
    (tmp_path / "k.py").write_text("import no_such_module\n\n\ndef twice():\n    pass\n")
    kernel = f'[[kernel]]\nname = "twice"\nsource = "{tmp_path}/k.py:twice"\ndims = {{ n = "dynamic" }}\n'
    path = tmp_path / "demo.toml"
    path.write_text(f"{HEAD}{kernel}[kernel.tune]\nblock = [32, 64]\n")
    with pytest.raises(SourceError, match="imports no_such_module, which is not installed") as caught:
        export(path, tmp_path / "out", jobs=1)
    assert caught.value.place is not None
    assert not (tmp_path / "out").exists()


def test_a_variant_without_a_possible_config_says_why(tmp_path: Path) -> None:
    (tmp_path / "k.py").write_text("def twice(n, block=16):\n    raise ValueError(f'no {block} here')\n")
    kernel = f'[[kernel]]\nname = "twice"\nsource = "{tmp_path}/k.py:twice"\ndims = {{ n = "dynamic" }}\n'
    path = tmp_path / "demo.toml"
    path.write_text(f"{HEAD}{kernel}[kernel.tune]\nblock = [32, 64]\n")
    with pytest.raises(TuneError, match="no config of twice") as caught:
        export(path, tmp_path / "out", jobs=1)
    assert "3 kernel source: " in (caught.value.why or "")
    assert caught.value.place is not None
