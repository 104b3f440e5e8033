"""The folder of `make gpu-bundle` on the stand-in driver: what is right passes, what is wrong is found."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from cuda_samples import scale_spec
from example_modules import module_of

from tilec.manifest import load_manifest
from tilec.package.write import write_package
from tilec.targets import native_host
from tilec.trials.library import read_facts

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).resolve().parents[3] / "benchmarks" / "gpu" / "bundle.py"


@pytest.fixture(scope="module")
def bundle() -> ModuleType:
    return module_of(SCRIPT, "gpu_bundle_script")


def write(bundle: ModuleType, folder: Path, *kernels: str) -> Path:
    library = write_package(scale_spec(native_host(), *kernels), folder / "library").library
    bundle.write_bundle(library, folder / "bundle", read_facts(library), {}, 4)
    return folder / "bundle"


def run(folder: Path, driver: Path, *options: str) -> tuple[int, dict, str]:
    env = {**os.environ, "LD_LIBRARY_PATH": str(driver), "FAKE_CUDA": "1 80 12000", "PYTHONPATH": ""}
    command = [sys.executable, str(folder / "run.py"), "--json", str(folder / "r.json"), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env, timeout=120)
    assert (folder / "r.json").exists(), done.stdout + done.stderr
    return done.returncode, json.loads((folder / "r.json").read_text()), done.stdout + done.stderr


def test_a_right_library_passes_every_part_but_the_peers(
    bundle: ModuleType, driver: Path, tmp_path: Path
) -> None:
    folder = write(bundle, tmp_path, "scale")
    code, report, text = run(folder, driver, *("--only", "verify", "--only", "robust", "--only", "load"))
    assert (code, report["problems"]) == (0, []), text
    assert len(report["verify"]) == 4
    assert set(report["robust"]) >= {"capture", "streams", "second context", "cold capture", "wrong address"}
    assert report["load"]["CUDA variants"] == 2


def test_tilec_works_from_the_folder(
    bundle: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    shutil.copytree(SCRIPT.parent / "runner", tmp_path, dirs_exist_ok=True)
    bundle.write_sources(tmp_path / "source")
    monkeypatch.syspath_prepend(tmp_path)
    toolchain = importlib.import_module("toolchain")
    assert toolchain.missing() == ""
    found = toolchain.check("cpu", ("machine", "jit"))
    assert [seen.get("problem") for seen in found.values()] == [None, None]
    assert found["machine"]["tilec"] == str(tmp_path / "source" / "tilec")


def test_defects_are_found_and_do_not_end_the_run(bundle: ModuleType, driver: Path, tmp_path: Path) -> None:
    folder = write(bundle, tmp_path, "scale", "scale_dies", "scale_past", "scale_tail")
    code, report, _ = run(folder, driver, "--only", "verify")
    found = "\n".join(report["problems"])
    assert code == 1
    for text in ("scale_dies: cuCtxSynchronize failed", "memory around y was written", "y: 1 of"):
        assert text in found
    assert any(result["case"].startswith("scale ") for result in report["verify"])


def test_a_kernel_that_hangs_is_left_out_and_named(bundle: ModuleType, driver: Path, tmp_path: Path) -> None:
    folder = write(bundle, tmp_path, "scale_hangs", "scale")
    code, report, _ = run(folder, driver, *("--only", "verify", "--patience", "1"))
    assert (code, report["problems"]) == (1, ["scale_hangs: no end within 1 s"])
    assert [result["problems"] for result in report["verify"]] == [[]] * 4
    assert all(result["case"].startswith("scale ") for result in report["verify"])


def test_the_folder_needs_no_more_of_tilec(bundle: ModuleType, tmp_path: Path) -> None:
    folder = write(bundle, tmp_path, "scale")
    there = sorted(str(file.relative_to(folder / "tilec")) for file in (folder / "tilec").rglob("*.py"))
    assert [name for name in there if not name.endswith("__init__.py")] == sorted(bundle.SHARED)
    assert all(not (file.read_text()) for file in (folder / "tilec").rglob("__init__.py"))


def test_modules_of_the_folder_may_be_asked_for_anything(bundle: ModuleType, tmp_path: Path) -> None:
    """As tools do that look through all modules: torch's compiler is one."""
    folder = write(bundle, tmp_path, "scale")
    asked = "import tilec.dtypes, tilec.portable.loader; print(hasattr(tilec.dtypes, 'whatever'))"
    done = subprocess.run(
        [sys.executable, "-S", "-c", asked],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": ""},
    )
    assert (done.stdout, done.returncode) == ("False\n", 0), done.stderr


@pytest.mark.parametrize("layout", ["nt", "nn"])
def test_late_products_differ_by_their_early_start_alone(bundle: ModuleType, layout: str) -> None:
    kernels = {kernel.name: kernel for kernel in load_manifest(bundle.OWN_MANIFEST).kernels}

    def schedules(name: str) -> dict[tuple[str, ...], dict]:
        """Configs by guards, without the keys of an early start and without those that say the default."""
        defaults = {"group_order": "row", "cluster": 1, "pingpong": False}
        return {
            tuple(f"{dim}={guard}" for dim, guard in variant.dims.items()): {
                key: value
                for key, value in variant.config.items()
                if key not in ("pdl", "constant") and defaults.get(key) != value
            }
            for variant in kernels[name].variants
        }

    late, tuned = (schedules(f"matmul_{layout}_{kind}float16") for kind in ("late_", ""))
    assert late
    assert late == {guards: tuned[guards] for guards in late}
