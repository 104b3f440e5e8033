"""The Python package of a build: stubs that check, a wheel that runs anywhere, operators of torch."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from samples import sample_spec

from tilec.package.bindings.python import python_files
from tilec.package.bindings.wheel import platform_tag, write_wheel
from tilec.package.write import BuildReport
from tilec.portable import torch_ops
from tilec.portable.loader import load
from tilec.portable.operands import Operands
from tilec.portable.torch_schema import schema
from tilec.targets import Host, native_host


def run(command: list[object], folder: Path | None = None, **environment: str) -> str:
    """What a command prints; nothing of this process's Python path reaches it."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | environment
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=False, env=env, cwd=folder, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def package(sample: BuildReport, tmp_path_factory: pytest.TempPathFactory) -> BuildReport:
    """The sample package in a folder of its own: Python and wheels write into it."""
    folder = tmp_path_factory.mktemp("python") / "package"
    shutil.copytree(sample.out_dir, folder, symlinks=True)
    return replace(sample, out_dir=folder, library=folder / "lib" / sample.library.name)


@pytest.fixture(scope="module")
def wheel(package: BuildReport) -> Path:
    return write_wheel(sample_spec(native_host()), package)


# ---- the package ----


def test_the_package_finds_the_library_of_its_prefix(package: BuildReport, tmp_path: Path) -> None:
    script = """
import numpy as np, sample
a = np.arange(3, dtype=np.float32)
assert (sample.add(a, a) == 2 * a).all()
assert sample.matmul.name == "matmul" and sample.library.name == "sample" == sample.__name__
assert sample.__version__ == "1.2.3"
"""
    run([sys.executable, "-c", script], tmp_path, PYTHONPATH=str(package.out_dir / "python"))


def test_a_library_of_another_build_is_refused(package: BuildReport, tmp_path: Path) -> None:
    for where, text in python_files(sample_spec(native_host()), "0" * 32).items():
        (tmp_path / where).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / where).write_text(text)
    (tmp_path / "lib").symlink_to(package.out_dir / "lib")
    script = """
try:
    import sample
except Exception as error:
    print(type(error).__name__, error)
"""
    said = run([sys.executable, "-c", script], tmp_path, PYTHONPATH=str(tmp_path / "python"))
    assert said.startswith("LibraryError")
    assert f"this package of build {'0' * 32}" in said


TYPED = """
import numpy as np
import sample
a = np.ones((2, 3), np.float32)
reveal_type(sample.matmul(a, a))
reveal_type(sample.matmul(a, a, a, 0.5, serial=True))
reveal_type(sample.mixed(a, 3, True, 1, 0.5))
reveal_type(sample.library.metadata)
sample.matmul(a, a, "text")
sample.matmul.select("cpu", M=1)
"""


@pytest.mark.slow
def test_the_stubs_check(package: BuildReport, tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "typed.py").write_text(TYPED)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", tmp_path / "cache", "typed.py"]
    env = {**os.environ, "MYPYPATH": str(package.out_dir / "python")}
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, cwd=tmp_path, env=env, check=False
    )
    revealed = [
        line.partition("Revealed type is ")[2] for line in done.stdout.splitlines() if "Revealed" in line
    ]
    assert ["ndarray" in each for each in revealed[:3]] == [True, False, True]
    assert revealed[1].startswith('"None"')
    errors = [line for line in done.stdout.splitlines() if " error: " in line]
    assert len(errors) == 1, done.stdout
    assert errors[0].startswith("typed.py:9: ")


def test_names_that_python_keeps_for_itself() -> None:
    first = sample_spec(native_host()).kernels[0]
    params = tuple(
        replace(param, name=name) for param, name in zip(first.params, ("in", "self", "c"), strict=True)
    )
    kernels = tuple(replace(first, name=name, params=params) for name in ("lambda", "load", "plain"))
    files = python_files(replace(sample_spec(native_host()), kernels=kernels), "0" * 32)
    stub, init = files["python/sample/__init__.pyi"], files["python/sample/__init__.py"]
    compile(stub, "__init__.pyi", "exec")
    compile(init, "__init__.py", "exec")
    assert 'lambda_ = library.kernels["lambda"]' in init
    assert 'load_ = library.kernels["load"]' in init
    assert "def __call__(self, in_: _Array, self_: _Array," in stub


# ---- the wheel ----

IN_AN_EMPTY_ENVIRONMENT = """
import ctypes, sys
import sample

class Floats:
    def __init__(self, *values):
        self.memory = (ctypes.c_float * len(values))(*values)
        data = (ctypes.addressof(self.memory), False)
        self.__array_interface__ = {
            "data": data, "typestr": "<f4", "shape": (len(values),), "strides": None, "version": 3
        }

a, c = Floats(1, 2, 3), Floats(0, 0, 0)
sample.add(a, a, c)
assert list(c.memory) == [2, 4, 6]
assert not {"numpy", "torch", "tilec"} & set(sys.modules)
print(sample.__file__)
"""


def test_the_wheel_runs_in_a_fresh_environment(wheel: Path, tmp_path: Path) -> None:
    run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"])
    python = tmp_path / "env" / "bin" / "python"
    run([sys.executable, "-m", "pip", "--python", python, "install", "--no-index", "--quiet", wheel])
    assert str(tmp_path / "env") in run([python, "-c", IN_AN_EMPTY_ENVIRONMENT], tmp_path)


def test_the_same_package_gives_the_same_wheel(package: BuildReport, wheel: Path) -> None:
    before = wheel.read_bytes()
    assert write_wheel(sample_spec(native_host()), package).read_bytes() == before
    names = zipfile.ZipFile(wheel).namelist()
    assert "sample/libsample.so" in names
    assert names[-1] == "sample-1.2.3.dist-info/RECORD"


def test_the_tag_is_what_the_library_needs() -> None:
    spec = replace(sample_spec(native_host()), host=Host("aarch64", "2.17"))
    assert platform_tag(spec, b"\0GLIBC_2.2.5\0GLIBC_2.17\0") == "manylinux_2_17_aarch64"
    assert platform_tag(spec, b"\0GLIBC_2.34\0GLIBC_2.4\0") == "manylinux_2_34_aarch64"
    assert platform_tag(replace(spec, host=Host("x86_64", "2.28")), b"") == "manylinux_2_28_x86_64"


# ---- torch ----

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def ops(package: BuildReport) -> Any:
    names = torch_ops.register(load(package.library), "tilec_sample")
    assert names == ("add", "matmul", "mixed", "normalize")
    return torch.ops.tilec_sample


def test_operators_compute(ops: Any) -> None:
    a, b = torch.randn(5, 8), torch.randn(8, 16)
    torch.testing.assert_close(ops.matmul(a, b), a @ b)
    torch.testing.assert_close(ops.matmul(a, b, alpha=0.5), 0.5 * a @ b)
    x = torch.rand(6, 10)[:, :7]
    torch.testing.assert_close(ops.normalize(x), x / x.sum(1, keepdim=True))


@pytest.mark.parametrize("name", ["add", "matmul", "mixed", "normalize"])
def test_operators_pass_opcheck(ops: Any, name: str) -> None:
    arguments = {
        "add": (torch.randn(9), torch.randn(9)),
        "matmul": (torch.randn(5, 8), torch.randn(8, 16), 0.5),
        "mixed": (torch.ones(4, dtype=torch.int8), 8, True, 3, 0.5),
        "normalize": (torch.rand(6, 10)[:, :7],),
    }[name]
    torch.library.opcheck(getattr(ops, name).default, arguments)


def test_operators_trace_with_symbolic_shapes(ops: Any) -> None:
    def model(a: Any, b: Any) -> Any:
        return ops.matmul(torch.relu(a), b) + 1

    a, b = torch.randn(5, 8), torch.randn(8, 16)
    traced = torch.compile(model, backend="eager", fullgraph=True, dynamic=True)
    for rows in (5, 7):
        a = torch.randn(rows, 8)
        torch.testing.assert_close(traced(a, b), model(a, b))


def test_written_tensors_are_marked_as_mutated() -> None:
    tensor = {"name": "x", "kind": "tensor", "dtype": "float32", "access": "inout", "output": False}
    scalar = {"name": "k", "kind": "scalar", "dtype": "bfloat16", "access": "in", "output": False}
    params = [{**tensor, "default": None}, {**scalar, "default": None}]
    text = schema(Operands({"params": params, "dims": [{"name": "N", "binds": []}]}))
    assert text == "(Tensor(a0!) x, float k, *, SymInt N) -> ()"
