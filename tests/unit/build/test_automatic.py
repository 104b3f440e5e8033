"""``config = "auto"``: what may be chosen of a kernel, what is, and what it follows from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tilec.build.elaborated import plans
from tilec.build.elaborated.plans import load_plan
from tilec.build.library import build
from tilec.build.schedules import automatic
from tilec.build.schedules.parameters import derived_axes
from tilec.build.schedules.promising import promising
from tilec.costs import cost
from tilec.errors import ManifestError, UnsupportedError
from tilec.manifest import Variant, load_manifest

KERNELS = Path(__file__).with_name("chosen_kernels.py")
GEMM = Path(__file__).parents[3] / "examples" / "kernels" / "gemm.py"
HEAD = '[package]\nname = "chosen"\n[targets]\ncpu = ["x86-64-v2"]\ncuda = ["sm_90a"]\n'
PRODUCT = f"""
[[kernel]]
name = "product"
source = "{GEMM}:matmul"
args = {{ dtype = "float16" }}
dims = {{ M = "dynamic", N = "%8", K = "%8" }}
fallback = "none"
"""
SUMS = f"""
[[kernel]]
name = "sums"
source = "{KERNELS}:sums"
dims = {{ M = "dynamic", N = "dynamic" }}
"""
TUNED = """
edition = 1
[[tuned]]
kernel = "sums"
target = "x86-64-v2"
dims = { M = "dynamic", N = "dynamic" }
config = { rows = 2 }
latency_us = 1.0
device = "a CPU"
source_sha256 = "0"
date = "2026-01-31"
"""


def run_here(
    work: Callable[[Any], Any], tasks: list[Any], _jobs: int, done: Callable[[int, Any], None], _title: Any
) -> None:
    for at, task in enumerate(tasks):
        done(at, work(task))


@pytest.fixture
def manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Writes a manifest with a cache of its own, for plans that few schedules are tried for, in this
    process."""
    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(automatic, "_SKETCHED", 12)
    monkeypatch.setattr(automatic, "_LOWERED", 4)
    monkeypatch.setattr(plans, "run_tasks", run_here)

    def write(text: str) -> Path:
        path = tmp_path / "chosen.toml"
        path.write_text(f"edition = 1\n{HEAD}{text}")
        return path

    return write


def variant(path: Path, target: str) -> Variant:
    (found,) = load_manifest(path, targets=[target]).variants
    return found


def test_tiles_stages_and_threads_are_found(manifest: Callable[[str], Path]) -> None:
    path = manifest(PRODUCT)
    tiles = {"bM": (32, 64, 128, 256), "bN": (32, 64, 128, 256), "bK": (32, 64, 128)}
    on_gpu = {**tiles, "num_stages": (2, 4), "threads": (128, 256), "split_k": (1, 2, 4)}
    assert derived_axes(variant(path, "x86-64-v2")) == tiles
    assert derived_axes(variant(path, "sm_90a")) == on_gpu


def test_what_changes_results_stays(manifest: Callable[[str], Path]) -> None:
    axes = derived_axes(variant(manifest(SUMS), "sm_90a"))
    assert axes == {"rows": (8, 16), "columns": (64, 128, 256)}


def test_what_is_fixed_stays(manifest: Callable[[str], Path]) -> None:
    text = 'config = "auto"\noverride = [{ targets = ["cuda"], config = { columns = 64 } }]\n'
    path = manifest(SUMS + text)
    assert "columns" not in derived_axes(variant(path, "sm_90a"))
    assert "columns" in derived_axes(variant(path, "x86-64-v2"))
    assert "columns" in derived_axes(replace(variant(path, "sm_90a"), is_auto=False))
    assert all(one.config["columns"] == 64 for one in load_plan(path, targets=["cuda"]).variants)


def test_a_kernel_without_parameters_says_so(manifest: Callable[[str], Path]) -> None:
    text = f'[[kernel]]\nname = "fixed"\nsource = "{KERNELS}:fixed"\ndims = {{ n = "dynamic" }}\n'
    with pytest.raises(UnsupportedError, match="fixed has no parameters that a schedule could choose"):
        load_plan(manifest(text + 'config = "auto"\n'), targets=["cpu"])


def test_schedules_come_of_the_model_and_are_kept(
    manifest: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = manifest(PRODUCT + 'config = "auto"\n')
    made = load_plan(path, targets=["cuda"], jobs=1).variants
    assert 2 <= len(made) <= 4
    assert {one.config_source for one in made} == {'config = "auto"'}
    assert [one.index for one in made] == list(range(len(made)))
    dims = {"M": 100, "N": 4096, "K": 4096}
    assert all(cost(one.cost, dims, 132) > 0 for one in made)
    monkeypatch.setattr(plans, "_choose", None)
    assert load_plan(path, targets=["cuda"], jobs=2).variants == made


def test_the_space_may_be_the_authors(manifest: Callable[[str], Path]) -> None:
    path = manifest(SUMS + 'config = "auto"\n[kernel.tune]\nrows = [2, 4]\n')
    made = load_plan(path, targets=["cpu"], jobs=1).variants
    assert {key for one in made for key in one.config} <= {"rows"}


def test_a_measured_config_wins(manifest: Callable[[str], Path]) -> None:
    path = manifest(SUMS + 'config = "auto"\n')
    path.with_suffix(".tuned.toml").write_text(TUNED)
    (made,) = load_plan(path, targets=["cpu"]).variants
    assert (dict(made.config), made.cost) == ({"rows": 2}, "")


def test_a_library_is_built(manifest: Callable[[str], Path], tmp_path: Path) -> None:
    path = manifest(SUMS + 'override = [{ config = "auto" }]\nconfig = { rows = 4 }\n')
    result = build(path, tmp_path / "out", targets=["cpu"], jobs=1)
    (kernel,) = result.plan.kernels
    assert all(one.is_schedule for one in kernel.variants)
    assert result.report.library.exists()


def test_other_words_are_refused(manifest: Callable[[str], Path]) -> None:
    with pytest.raises(ManifestError, match="config"):
        load_manifest(manifest(SUMS + 'config = "fast"\n'))


def test_configs_that_are_best_somewhere_come_first() -> None:
    seconds = {0: [3.0, 3.0], 1: [1.0, 4.0], 2: [4.0, 1.0], 3: [1.5, 4.0]}
    assert promising(seconds, 4)[:2] in ([1, 2], [2, 1])
    assert sorted(promising(seconds, 4)) == [0, 1, 2, 3]
