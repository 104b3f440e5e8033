"""A project from `init`, built, changed and broken; every way a kernel source can be wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tilec.portable.loader import load

MANIFEST = """
edition = 1
[package]
name = "proj"
[targets]
cpu = ["x86-64-v2"]
host = "x86_64-linux-gnu.2.17"
[[kernel]]
name = "saxpy"
source = "kernels/saxpy.py:saxpy"
dims = { n = "dynamic" }
reference = "kernels/saxpy.py:saxpy_reference"
"""


@pytest.fixture
def project(tilec: Callable, tmp_path: Path) -> Path:
    """A project with one kernel and one target."""
    assert tilec("init", "proj").code == 0
    (tmp_path / "proj" / "proj.toml").write_text(MANIFEST)
    return tmp_path / "proj"


def build(tilec: Callable, project: Path, *options: str) -> dict:
    """The summary of a build that succeeds."""
    outcome = tilec("build", project / "proj.toml", "-o", project / "out", "--json", "-j", "1", *options)
    assert outcome.code == 0, outcome.err
    return json.loads(outcome.out)


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_road_of_a_project(tilec: Callable, project: Path) -> None:
    first = build(tilec, project)
    assert (first["compiled"], first["reused"], first["package_reused"]) == (1, 0, False)
    again = build(tilec, project)
    assert (again["compiled"], again["reused"], again["package_reused"]) == (0, 1, True)
    assert again["seconds"] < 1
    assert again["build_id"] == first["build_id"]

    (project / "out" / "include" / "proj.h").unlink()
    repaired = build(tilec, project)
    assert (repaired["compiled"], repaired["package_reused"]) == (0, False)
    assert (project / "out" / "include" / "proj.h").exists()

    replace(project / "kernels" / "saxpy.py", "a * x[b * block + i] +", "a * x[b * block + i] -")
    changed = build(tilec, project)
    assert changed["compiled"] == 1
    assert changed["build_id"] != first["build_id"]

    checked = tilec("verify", project / "out", "--manifest", project / "proj.toml")
    assert checked.code == 1
    assert "elements are wrong" in checked.err
    assert "FAILED" in checked.out
    assert tilec("verify", project / "out").code == 0


def test_a_change_in_an_imported_file_counts(tilec: Callable, project: Path) -> None:
    (project / "kernels" / "factors.py").write_text("FACTOR = 1.0\n")
    replace(
        project / "kernels" / "saxpy.py",
        "import numpy as np",
        "import numpy as np\nfrom factors import FACTOR",
    )
    replace(project / "kernels" / "saxpy.py", "a * x", "FACTOR * a * x")
    assert build(tilec, project)["compiled"] == 1
    assert not (project / "kernels" / "__pycache__").exists(), "it tells the age of a file in whole seconds"
    (project / "kernels" / "unrelated.py").write_text("")
    assert build(tilec, project)["compiled"] == 0
    (project / "kernels" / "factors.py").write_text("FACTOR = 3.0\n")
    assert build(tilec, project)["compiled"] == 1
    x = np.arange(10, dtype=np.float32)
    assert np.array_equal(load(project / "out").saxpy(x, x, 2.0), 7 * x)


def roads_of(tilec: Callable, project: Path) -> str:
    outcome = tilec("inspect", project / "out", "--roads")
    assert outcome.code == 0
    return outcome.out


def test_lines_and_words_about_a_kernel_compile_nothing(tilec: Callable, project: Path) -> None:
    build(tilec, project)
    source = project / "kernels" / "saxpy.py"
    before = source.read_text().splitlines()
    line = next(number for number, text in enumerate(before, 1) if "out[b * block + i]" in text)
    assert f"saxpy.py:{line} " in roads_of(tilec, project)
    replace(source, "out = a * x + y over n elements", "another word of it")
    replace(source, '"""out = a * x + y."""', '"""The same, said anew."""')
    replace(source, LOOP, f"            # a comment{chr(10)}{LOOP}")
    changed = build(tilec, project)
    assert (changed["compiled"], changed["reused"], changed["package_reused"]) == (0, 1, False)
    assert f"saxpy.py:{line + 1} " in roads_of(tilec, project)
    assert "The same, said anew." in (project / "out" / "include" / "proj.h").read_text()


def test_nothing_is_imported_when_nothing_changed(tilec: Callable, project: Path, tmp_path: Path) -> None:
    build(tilec, project)
    script = f"""
import sys
from tilec.build import build
result = build({str(project / "proj.toml")!r}, {str(project / "out")!r})
print(result.reused, result.package_reused, "tvm" in sys.modules, "numpy" in sys.modules)
"""
    env = {**os.environ, "TILEC_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "True", "False", "False"]


def test_two_folders_give_the_same_bytes(
    tilec: Callable, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEC_CACHE", "0")
    build(tilec, project)
    first = snapshot(project / "out")
    moved = project.rename(project.with_name("elsewhere"))
    outcome = tilec("build", moved / "proj.toml", "-o", moved / "other", "-j", "1")
    assert outcome.code == 0, outcome.err
    assert snapshot(moved / "other") == first


LOOP = "            for i in T.Parallel(block):"
MISMATCHED_COPY = """\
            tile = T.alloc_shared((16,), dtype)
            other = T.alloc_shared((8,), dtype)
            T.copy(tile, other)
"""
MISMATCHED_GEMM = """\
            a = T.alloc_shared((16, 8), dtype)
            c = T.alloc_fragment((16, 8), dtype)
            T.gemm(a, a, c)
"""
OUT_OF_RANGE = """\
            tile = T.alloc_shared((16,), dtype)
            tile[17] = 0.0
"""

SOURCE_ERRORS = [
    pytest.param(LOOP, MISMATCHED_COPY + LOOP, "saxpy.py:21", "do not match", id="copy-shapes"),
    pytest.param(LOOP, MISMATCHED_GEMM + LOOP, "saxpy.py:21", "axis K is 8 in a and 16", id="gemm-shapes"),
    pytest.param(LOOP, OUT_OF_RANGE + LOOP, "saxpy.py:20", "index 17 is out of range", id="static-index"),
    pytest.param(
        LOOP, f"            yield 3\n{LOOP}", "saxpy.py:19", "yield is not supported", id="unsupported"
    ),
    pytest.param(
        "    @T.prim_func", "    @T.prim_func(", "kernels/saxpy.py:", "no valid Python", id="syntax"
    ),
    pytest.param(
        "    @T.prim_func", "    1 / 0\n\n    @T.prim_func", "saxpy.py:15", "ZeroDivisionError", id="raises"
    ),
    pytest.param("T.ceildiv(n, block)", "T.ceildivv(n, block)", "saxpy.py:18", "ceildiv", id="unknown-name"),
    pytest.param("x[b * block + i]", "x[b, i]", "saxpy.py:20", "", id="wrong-rank"),
    pytest.param("def saxpy(n, block", "def saxpy(n, width, block", "saxpy", "width", id="missing-parameter"),
    pytest.param("def saxpy(n, block", "def saxpy(m, block", "saxpy", "parameter", id="unknown-parameter"),
    pytest.param(
        "import numpy as np", "import no_such_module", "saxpy.py:5", "no_such_module", id="missing-import"
    ),
    pytest.param("def saxpy(", "def saxpi(", "saxpy.py", "did you mean saxpi", id="missing-entry"),
]


@pytest.mark.parametrize(("old", "new", "where", "said"), SOURCE_ERRORS)
def test_a_wrong_source_is_told_and_the_old_library_stays(
    tilec: Callable, project: Path, old: str, new: str, where: str, said: str
) -> None:
    (project / "out").mkdir()
    (project / "out" / "keep").write_text("the previous build")
    replace(project / "kernels" / "saxpy.py", old, new)
    for command in (
        ["check", project / "proj.toml"],
        ["build", project / "proj.toml", "-o", project / "out", "-j", "1"],
    ):
        outcome = tilec(*command)
        assert outcome.code == 2, outcome.err
        assert "Traceback" not in outcome.err
        assert where in outcome.err
        assert said in outcome.err
    assert snapshot(project / "out") == {"keep": b"the previous build"}


def test_errors_cross_from_compile_processes_whole(tilec: Callable, project: Path) -> None:
    replace(project / "proj.toml", '"x86-64-v2"', '"x86-64-v2", "x86-64-v3"')
    replace(project / "kernels" / "saxpy.py", "x[b * block + i]", "x[b, i]")
    outcome = tilec("build", project / "proj.toml", "-o", project / "out", "-j", "2")
    assert outcome.code == 2
    assert "saxpy.py:20" in outcome.err
    assert "while compiling saxpy on x86-64-v" in outcome.err
    assert "what to do" in outcome.err


def test_cuda_without_a_compiler_is_refused_before_compiling(
    tilec: Callable, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace(project / "proj.toml", 'cpu = ["x86-64-v2"]', 'cpu = ["x86-64-v2"]\ncuda = ["sm_90a"]')
    assert tilec("check", project / "proj.toml").code == 0
    monkeypatch.setenv("TILEC_NVCC", "no-such-nvcc")
    outcome = tilec("build", project / "proj.toml", "-o", project / "out")
    assert outcome.code == 3
    assert "no-such-nvcc" in outcome.err
    assert "TILEC_NVCC" in outcome.err
    assert not (project / "out").exists()


@pytest.mark.nvrtc
def test_cpu_and_cuda_code_share_a_library(tilec: Callable, project: Path) -> None:
    replace(
        project / "proj.toml", 'cpu = ["x86-64-v2"]', 'cpu = ["x86-64-v2"]\ncuda = ["sm_80", "compute_80"]'
    )
    first = tilec("build", project / "proj.toml", "-o", project / "out", "--json")
    assert first.code == 0, first.err
    shown = json.loads(tilec("inspect", project / "out", "--json").out)
    found = {variant["target"]: variant for variant in shown["kernels"][0]["variants"]}
    assert set(found) == {"x86-64-v2", "sm_80", "compute_80"}
    assert not found["sm_80"].get("align"), "no address is known at plan time: select() would refuse it"
    assert found["sm_80"]["launches"][0]["gpu"]["registers"] > 0
    assert found["sm_80"]["image"]["min_driver"].endswith(".0")
    assert "registers" in tilec("inspect", project / "out").out
    again = json.loads(tilec("build", project / "proj.toml", "-o", project / "out", "--json").out)
    assert (again["compiled"], again["reused"] > 0) == (0, True), "the cache holds CUDA images too"


def test_a_part_that_replaces_more_is_told(tilec: Callable, project: Path) -> None:
    levels = 'cpu = ["x86-64-v2", "x86-64-v3"]'
    replace(project / "proj.toml", 'cpu = ["x86-64-v2"]', levels)
    replace(project / "kernels" / "saxpy.py", "+ y[b * block + i]", "+ T.exp(y[b * block + i])")
    assert build(tilec, project)["warnings"] == []
    (warning,) = build(tilec, project, "--target", "x86-64-v3")["warnings"]
    assert "had x86-64-v2, too, which --target and --kernel leave out" in warning
    assert build(tilec, project, "--target", "x86-64-v3")["warnings"] == []


def test_an_output_folder_that_is_a_file_is_refused_before_compiling(tilec: Callable, project: Path) -> None:
    (project / "out").write_text("in the way")
    outcome = tilec("build", project / "proj.toml", "-o", project / "out" / "deeper")
    assert outcome.code == 1
    assert "cannot be written" in outcome.err
    assert (project / "out").read_text() == "in the way"


def test_no_space_leaves_the_previous_library_whole(
    tilec: Callable, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(tilec, project)
    before = snapshot(project / "out")
    replace(project / "kernels" / "saxpy.py", "a * x[b * block + i] +", "a * x[b * block + i] -")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shutil.copyfile", full)
    outcome = tilec("build", project / "proj.toml", "-o", project / "out", "-j", "1")
    assert outcome.code == 3
    assert "the disk is full" in outcome.err
    assert "No space left" in outcome.err
    assert snapshot(project / "out") == before
    assert [path.name for path in (project / "out").iterdir() if path.name.startswith(".")] == []


def heed_interrupts() -> None:
    """A shell that runs the tests in the background has them, and what they start, ignore SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def wait_for(folder: Path, files: int, seconds: float = 40) -> None:
    """Returns once ``folder`` has so many files."""
    end = time.monotonic() + seconds
    while len(list(folder.iterdir())) < files:
        assert time.monotonic() < end, f"{folder} has not {files} files after {seconds} s"
        time.sleep(0.05)


_UNDER_WAY = "; ".join(f"saxpy on {level}, n=dynamic" for level in ("x86-64-v2", "x86-64-v3"))


@pytest.mark.parametrize(
    ("sent", "code", "said"),
    [(signal.SIGINT, 130, [f"interrupted; under way were: {_UNDER_WAY}"]), (signal.SIGTERM, 143, [])],
)
def test_an_interrupt_leaves_the_previous_library_whole_and_nothing_aside(
    project: Path, tilec: Callable, tmp_path: Path, sent: int, code: int, said: list[str]
) -> None:
    build(tilec, project)
    before = snapshot(project / "out")
    begun = tmp_path / "begun"
    begun.mkdir()
    pause = f"import numpy as np, os, time\nopen(f'{begun}/{{os.getpid()}}', 'w').close()\ntime.sleep(60)"
    replace(project / "kernels" / "saxpy.py", "import numpy as np", pause)
    replace(project / "proj.toml", '"x86-64-v2"', '"x86-64-v2", "x86-64-v3"')
    aside = tmp_path / "aside"
    aside.mkdir()
    env = {**os.environ, "TILEC_CACHE_DIR": str(tmp_path / "cache"), "TMPDIR": str(aside)}
    command = [sys.executable, "-m", "tilec.cli.main", "build", "proj.toml", "-o", "out", "-j", "2"]
    running = subprocess.Popen(
        command,
        cwd=project,
        env=env,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=heed_interrupts,
    )
    wait_for(begun, 2)
    os.killpg(running.pid, sent)
    _, err = running.communicate(timeout=30)
    assert running.returncode == code
    assert [line for line in err.splitlines() if line and "/" not in line] == said
    assert list(aside.iterdir()) == []
    assert snapshot(project / "out") == before


def test_a_cache_that_cannot_be_written_is_a_warning(tilec: Callable, project: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("in the way")
    outcome = tilec("build", project / "proj.toml", "-o", project / "out", "-j", "1")
    assert outcome.code == 0
    assert outcome.err.count("cannot be written") == 1
    assert (project / "out" / "lib" / "libproj.so").exists()


def test_what_other_frameworks_load_is_written_on_request(tilec: Callable, project: Path) -> None:
    replace(project / "proj.toml", 'name = "proj"', 'name = "proj"\nlicense = "mit"')
    with open(project / "proj.toml", "a") as manifest:
        manifest.write('[kernel.layer]\nname = "Saxpy"\nforward = ["x", "y"]\nmembers = { a = "scale" }\n')
    summary = build(tilec, project, "--wheel", "--hub", "--torch", "--onnxruntime")
    assert summary["wheel"] == str(project / "out/python/proj-0.1.0-py3-none-manylinux_2_17_x86_64.whl")
    assert Path(summary["wheel"]).exists()
    assert summary["hub"] == str(project / "out/hub")
    assert (project / "out/hub/README.md").read_text().startswith("---\nlicense: mit\n")
    text = (project / "out/hub/build/torch-universal/layers.py").read_text()
    assert "class Saxpy(nn.Module):" in text
    assert "a=self.scale" in text
    assert summary["torch"] == [str(project / "out/lib/libproj_torch.so")]
    assert Path(summary["torch"][0]).exists()
    assert summary["onnxruntime"] == [str(project / "out/lib/libproj_onnxruntime.so")]
    assert Path(summary["onnxruntime"][0]).exists()
    for command in ("inspect", "verify"):
        assert tilec(command, project / "out").code == 0, "the libraries of operators are not asked"
    again = build(tilec, project)
    assert (again["wheel"], again["hub"], again["onnxruntime"]) == (None, None, [])


# ---- sources ----


def test_emitted_sources_compile_on_their_own(tilec: Callable, project: Path) -> None:
    folder = project / "sources"
    summary = build(tilec, project, "--emit-source", str(folder))
    names = sorted(Path(path).name for path in summary["sources"])
    assert names[:-1] == ["proj_runtime.c", "proj_tables.c"]
    assert names[-1].startswith("saxpy_")
    assert names[-1].endswith(".x86-64-v2.c")
    assert "void saxpy_" in (folder / names[-1]).read_text()
    include = ["-Iruntime/include", "-Iruntime/src"]
    for name in names:
        command = ["cc", "-O1", "-Wno-psabi", *include, "-c", name, "-o", "made.o"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    again = build(tilec, project, "--emit-source", str(folder))
    assert again["compiled"] == 0, "variants of the cache have sources, too"
    (project / "file").write_text("")
    outcome = tilec(
        "build", project / "proj.toml", "-o", project / "out", "--emit-source", project / "file" / "x"
    )
    assert outcome.code == 1
    assert "cannot be written" in outcome.err
    assert "what to do: choose another with --emit-source" in outcome.err
    assert "/1 saxpy" not in outcome.err, "asked before work begins"


def test_check_takes_the_kernels_and_targets_of_build(tilec: Callable, project: Path) -> None:
    replace(project / "proj.toml", '"x86-64-v2"', '"x86-64-v2", "x86-64-v3"')
    outcome = tilec("check", project / "proj.toml", "--target", "x86-64-v3", "--kernel", "sax*")
    assert outcome.code == 0
    assert "x86-64-v3" in outcome.out
    assert "x86-64-v2" not in outcome.out
    outcome = tilec("check", project / "proj.toml", "--kernel", "saxy")
    assert outcome.code == 2
    assert 'no kernel matches "saxy"' in outcome.err
