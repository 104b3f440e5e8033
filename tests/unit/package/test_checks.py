from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from records import kernel, matmul, scalar, spec, tensor, variant

from tilec.errors import PackageError
from tilec.ir.guards import Guard
from tilec.package.checks import check_spec
from tilec.package.model import DimRecord, KernelRecord, Signature, kernel_record
from tilec.package.tables.pinned import pin_sets
from tilec.package.write import write_package


def one_dim(*variants: object, name: str = "k") -> KernelRecord:
    return kernel((tensor("A", "M"),), ("M",), *variants, name=name)


@pytest.mark.parametrize(
    ("kernels", "problem"),
    [
        ((one_dim(),), "has no variants"),
        ((one_dim(variant("a")), one_dim(variant("b"))), "'demo_k' 2 times"),
        ((one_dim(variant("a")), one_dim(variant("b"), name="k_workspace")), "'demo_k_workspace' 2 times"),
        ((one_dim(variant("a", "aarch64")),), "code for aarch64, the library is for x86_64"),
        ((kernel([scalar(f"s{i}", "int32") for i in range(65)], (), variant("a")),), "65 parameters"),
        ((kernel((), [f"d{i}" for i in range(33)], variant("a")),), "33 dims"),
        ((kernel((tensor("M", "M"),), ("M",), variant("a")),), "2 parameters or dims named 'M'"),
        ((kernel((tensor("int", "4"), tensor("int_", "4")), (), variant("a")),), "named 'int_'"),
    ],
)
def test_bad_specs(kernels: tuple[KernelRecord, ...], problem: str) -> None:
    with pytest.raises(PackageError, match=problem):
        check_spec(spec(*kernels))


def test_one_entry_from_two_images() -> None:
    first = variant("same")
    other = replace(first, image=replace(first.image, code=b"other", sha256="0" * 64))
    with pytest.raises(PackageError, match="two images define the entry 'same_0'"):
        check_spec(spec(one_dim(first, other)))


def test_too_many_variants_of_one_set(monkeypatch: pytest.MonkeyPatch) -> None:
    variants = [variant(f"v{bound}", M=Guard(max=bound)) for bound in range(1, 4)]
    assert len(pin_sets(kernel((), ("M",), *variants), "x86-64-v3")) == 1
    monkeypatch.setattr("tilec.package.tables.perfect_hash.EMPTY_SLOT", 3)
    with pytest.raises(PackageError, match="3 variants that pin the same dims on x86-64-v3"):
        pin_sets(kernel((), ("M",), *variants), "x86-64-v3")


def test_too_many_pin_sets() -> None:
    dims = [f"d{i}" for i in range(9)]
    variants = [variant(f"v{dim}", **{dim: Guard(eq=1)}) for dim in dims]
    with pytest.raises(PackageError, match="pins 9 different sets of dims"):
        pin_sets(kernel((), dims, *variants), "x86-64-v3")


def test_variants_must_share_a_signature() -> None:
    first = Signature((tensor("A", "M"),), (DimRecord("M"),))
    wide = replace(first, dims=(DimRecord("M", 64),))
    joined = kernel_record("k", [(wide, variant("a")), (first, variant("b"))])
    assert joined.dims == (DimRecord("M", 32),)
    for other in (
        replace(first, params=(tensor("A", "M", dtype="float16"),)),
        replace(first, params=()),
        replace(first, dims=(DimRecord("N"),)),
    ):
        with pytest.raises(PackageError, match="different signatures"):
            kernel_record("k", [(first, variant("a")), (other, variant("b"))])


def test_an_output_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("x")
    with pytest.raises(PackageError, match="cannot be written") as caught:
        write_package(spec(matmul()), tmp_path / "taken")
    assert "-o" in caught.value.remedy
    assert (tmp_path / "taken").read_text() == "x"


NO_SPACE = """
import resource, signal, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from records import matmul, spec
from tilec.errors import PackageError
from tilec.package.write import write_package
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    write_package(spec(matmul()), Path(sys.argv[2]))
except PackageError as error:
    print(error)
"""


def test_no_space_leaves_the_old_package_whole(tmp_path: Path) -> None:
    old = tmp_path / "lib" / "libdemo.so"
    old.parent.mkdir()
    old.write_bytes(b"old")
    command = [sys.executable, "-c", NO_SPACE, str(Path(__file__).parent), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "cannot be written" in done.stdout
    assert "why: File too large" in done.stdout
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["lib", "libdemo.so"]
    assert old.read_bytes() == b"old"


def test_a_failed_link_leaves_the_old_package_whole(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libdemo.so").write_bytes(b"old")
    with pytest.raises(PackageError, match=r"linking libdemo\.so failed"):
        write_package(spec(matmul()), tmp_path)  # its code is no object file
    assert (tmp_path / "lib" / "libdemo.so").read_bytes() == b"old"
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["lib", "libdemo.so"]
