"""Pages that lead by the hand do what they say: their blocks run in order in an empty folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from example_modules import importable

from tilec.targets import native_host

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
#: A command block, or a block that the line above it has written to a file.
BLOCK = re.compile(r"(?:^(Write|Append to) `([^`]+)`:\n\n)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def script(page: str) -> str:
    """The page as one shell script: files become here-documents."""
    lines = ["set -e"]
    for verb, file, language, text in BLOCK.findall(page):
        assert file or language == "sh", f"nothing says what the block is for:\n{text}"
        arrow = ">>" if verb == "Append to" else ">"
        lines.append(f"cat {arrow} {file} <<'END'\n{text}END" if file else text)
    return with_one_libcxx("\n".join(lines))


def with_one_libcxx(text: str) -> str:
    """C++ as programs of the examples for other machines are compiled: zig makes a libc++, which takes it the
    better part of a minute, for each target, and another for programs that keep their symbols."""
    if native_host().arch != "x86_64":
        return text
    with importable(ROOT / "examples" / "cpp", ["native"]):
        from native import portable_compiler

        return text.replace("python -m ziglang c++", " ".join(["python", *portable_compiler()[1:]]))


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the pages compile alike is compiled once."""
    return tmp_path_factory.mktemp("cache")


def run(page: str, folder: Path, cache: Path) -> subprocess.CompletedProcess[str]:
    """Runs the blocks of a page."""
    text = script((DOCS / page).read_text(encoding="utf-8"))
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    env = {**os.environ, "PATH": path, "TILEC_CACHE_DIR": str(cache)}
    done = subprocess.run(
        ["sh", "-c", text], cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.mark.slow
def test_the_tutorial(tmp_path: Path, cache: Path) -> None:
    done = run("tutorial.md", tmp_path, cache)
    assert done.stdout.endswith("all 300 values are 42\n")
    assert re.search(r"^\d+ cases: 0 failed", done.stderr, re.MULTILINE)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cargo") is None, reason="the page calls cargo")
def test_each_language(tmp_path: Path, cache: Path) -> None:
    said = run("languages.md", tmp_path, cache).stdout
    assert "out[10] = 21 (expected 21)\n" in said
    assert re.findall(r"^from (\S+): 42$", said, re.MULTILINE) == ["C++", "Rust", "Python"]
    assert "on threads of ours: 42\n" in said


@pytest.mark.slow
@pytest.mark.skipif(native_host().arch != "x86_64", reason="the page's manifest is for x86-64")
def test_a_small_library(tmp_path: Path, cache: Path) -> None:
    said = run("small.md", tmp_path, cache).stdout
    large, small = re.findall(r"^ *(\d+) dist/\w+/lib/\w+\.so$", said, re.MULTILINE)
    assert int(small) < int(large)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("onnxruntime") is None, reason="the page calls onnxruntime")
def test_operators_of_onnx_runtime(tmp_path: Path, cache: Path) -> None:
    assert run("onnxruntime.md", tmp_path, cache).stdout.endswith("from ONNX Runtime: 42\n")


@pytest.mark.slow
@pytest.mark.skipif(find_spec("torch") is None, reason="the page exports a model of torch")
@pytest.mark.skipif(
    not all(map(shutil.which, ("cmake", "c++"))), reason="the page builds a program with CMake"
)
def test_operators_of_torch_without_python(tmp_path: Path, cache: Path) -> None:
    assert run("torch.md", tmp_path, cache).stdout.endswith("from AOTInductor: 42\n")
