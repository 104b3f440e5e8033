"""`tilec build --torch`: a library that gives torch its operators, without tilec's Python in the process."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from operator_kernels import bump_kernel, by_way_kernel, packed_kernel
from samples import sample_spec

from tilec.errors import PackageError
from tilec.package.operators.torch import torch_kernels, write_torch_operators
from tilec.package.write import write_package, write_packages
from tilec.portable.loader import load
from tilec.portable.operands import Operands
from tilec.portable.torch_schema import schema
from tilec.targets import native_host, parse_host

pytest.importorskip("torch")

BEGIN = """
import sys
import torch
torch.ops.load_library(sys.argv[1])
ops = torch.ops.sample
def refused(function, *arguments, **named):
    try:
        function(*arguments, **named)
    except RuntimeError as error:
        return str(error).splitlines()[0]
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    spec = sample_spec(native_host())
    spec = replace(spec, kernels=(*spec.kernels, bump_kernel(), by_way_kernel(), packed_kernel()))
    report = write_package(spec, tmp_path_factory.mktemp("operators"))
    (made,) = write_torch_operators([spec], [report])
    return made


def said(library: Path, script: str) -> list[str]:
    """The lines that a process prints which knows nothing of tilec."""
    command = [sys.executable, "-I", "-c", BEGIN + script, str(library)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_kernels_are_operators(library: Path) -> None:
    script = """
a, b = torch.rand(5, 8), torch.rand(8, 16)
torch.testing.assert_close(ops.matmul(a, b), a @ b)
torch.testing.assert_close(ops.matmul(a, b, 0.5), 0.5 * a @ b)
wide = torch.rand(7, 128)[:, :64]
torch.testing.assert_close(ops.normalize(wide), wide / wide.sum(1, keepdim=True))
x = torch.arange(4, dtype=torch.int8)
assert ops.mixed(x, 8, True, 10, 2.0).tolist() == [20, 20, 22, 22, 24, 24, 26, 26]
assert ops.mixed(x, 8, False, 10, 1.0).tolist() == [0, 0, -1, -1, -2, -2, -3, -3]
x = torch.arange(3.0)
y = ops.bump(x, 0.5, M=6)
assert x.tolist() == [0.5, 1.5, 2.5] and y.shape == (12,) and y[:6].tolist() == [0, 1, 2, 0, 1, 2]
assert not hasattr(ops, "packed")
assert not any(name.partition(".")[0] == "tilec" for name in sys.modules)
print("all agree")
"""
    assert said(library, script) == ["all agree"]


def test_a_workspace_is_that_of_the_variant_for_where_tensors_begin(library: Path) -> None:
    script = """
x = torch.arange(64.0)
for start in range(9):
    assert ops.by_way(x[start : start + 16]).tolist() == x[start : start + 16].tolist()
print(ops.by_way(x[1:]).tolist() == x[1:].tolist())
"""
    assert said(library, script) == ["True"]


def test_errors_are_torchs(library: Path) -> None:
    script = """
a, b = torch.rand(5, 8), torch.rand(8, 16)
print(refused(ops.matmul, a, b[:7].clone()))
print(refused(ops.matmul, a.double(), b))
print(refused(ops.matmul, a[0], b))
print(refused(ops.matmul, torch.rand(200, 8), torch.rand(8, 24)))
print(refused(ops.bump, torch.arange(3.0), 1.0, M=2**62))
"""
    shape, dtype, axes, guards, extents = said(library, script)
    assert shape == "matmul: B axis 0 has extent 7, expected K = 8"
    assert dtype == "matmul: A has another element type than the kernel's"
    assert axes == "matmul: A has another number of axes than the kernel's"
    assert guards.startswith("matmul: no variant serves it: matmul: ")
    assert extents == "bump: the extents of its outputs have no value"


def test_schemas_are_those_of_the_python_package(library: Path) -> None:
    script = """
for name in ("add", "bump", "matmul", "mixed", "normalize"):
    print(str(getattr(ops, name).default._schema))
"""
    known = load(library.parent.parent)
    expected = [
        f"sample::{name}{schema(Operands(known.kernels[name].metadata))}"
        for name in ("add", "bump", "matmul", "mixed", "normalize")
    ]
    assert [text.replace("1.,", "1.0,").replace("1.)", "1.0)") for text in said(library, script)] == expected


def test_a_process_without_torch_is_told(library: Path) -> None:
    script = "import ctypes, sys; print(ctypes.CDLL(sys.argv[1]).sample_register_torch_operators() & 1)"
    command = [sys.executable, "-I", "-c", script, str(library)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "0\n"
    assert done.stderr.startswith("sample: its operators are not registered yet: no libtorch")


def test_a_package_may_have_the_name_of_a_file_of_the_runtime(tmp_path: Path) -> None:
    spec = replace(sample_spec(native_host()), name="doors", kernels=(bump_kernel(),))
    (made,) = write_torch_operators([spec], [write_package(spec, tmp_path)])
    script = "print(torch.ops.doors.bump(torch.arange(2.0), 1.0, M=2).tolist()[:2])"
    assert said(made, script) == ["[0.0, 1.0]"]


def test_no_operator_is_an_error(tmp_path: Path) -> None:
    spec = replace(sample_spec(native_host()), kernels=(packed_kernel(),))
    assert not torch_kernels(spec)
    report = write_package(spec, tmp_path)
    with pytest.raises(PackageError, match="sample has no kernel that torch can call"):
        write_torch_operators([spec], [report])


@pytest.mark.slow
def test_each_host_has_its_own(tmp_path: Path) -> None:
    specs = [sample_spec(parse_host(host)) for host in ("aarch64-macos.12", "x86_64-windows")]
    found = write_torch_operators(specs, write_packages(specs, tmp_path))
    assert [path.name for path in found] == ["libsample_torch.dylib", "sample_torch.dll"]
    for path in found:
        assert b"sample_register_torch_operators" in path.read_bytes()


def test_a_library_of_another_build_is_refused(library: Path, tmp_path: Path) -> None:
    spec = replace(sample_spec(native_host()), version="9.9.9")
    write_package(spec, tmp_path)
    (tmp_path / "lib" / library.name).write_bytes(library.read_bytes())
    command = [
        sys.executable,
        "-I",
        "-c",
        BEGIN + "print(hasattr(ops, 'add'))",
        str(tmp_path / "lib" / library.name),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
    assert done.stderr.startswith("sample: its operators are not registered yet: ")
    assert "build" in done.stderr
