"""What a linked library asks of a system, and what it shows."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import elf
import pytest
from samples import sample_spec

from tilec.package.checks import exported_symbols
from tilec.package.library import runtime
from tilec.package.library.inspect import read_library
from tilec.package.write import BuildReport, write_package
from tilec.targets import native_host, parse_host

SHF_ALLOC = 2
HOSTS = ["x86_64-linux-gnu.2.17", "aarch64-linux-gnu.2.17"]


@pytest.fixture(scope="module", params=HOSTS)
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> BuildReport:
    host = parse_host(request.param)
    return write_package(sample_spec(host), tmp_path_factory.mktemp(host.arch))


def test_needs_glibc_alone(built: BuildReport) -> None:
    needed = {name.rpartition(".so")[0] for name in elf.read(built.library).needed}
    assert needed <= {"libc", "libpthread", "libdl", "libm", "ld-linux-x86-64", "ld-linux-aarch64"}


def test_asks_for_nothing_above_glibc_2_17(built: BuildReport) -> None:
    versions = elf.read(built.library).versions
    numbers = [tuple(map(int, version.removeprefix("GLIBC_").split("."))) for version in versions]
    assert max(numbers) <= (2, 17)


def test_has_a_soname_with_the_abi_number(built: BuildReport) -> None:
    assert elf.read(built.library).soname == "libsample.so.1"


def test_has_no_constructor(built: BuildReport) -> None:
    assert elf.read(built.library).constructors == ()


def test_exports_the_public_names_alone(built: BuildReport) -> None:
    spec = sample_spec(parse_host(HOSTS[0]))
    assert elf.read(built.library).exports == set(exported_symbols(spec))


def test_ir_section_is_not_loaded(built: BuildReport) -> None:
    sections = elf.read(built.library).sections
    assert sections[".tilec.meta"].flags & SHF_ALLOC
    assert not sections[".tilec.ir"].flags & SHF_ALLOC
    assert not sections[".tilec.sums"].flags & SHF_ALLOC


def test_metadata_and_ir_are_read_back(built: BuildReport) -> None:
    info = read_library(built.library)
    assert info.metadata == built.metadata
    assert len(info.ir_texts()) == built.variants
    assert "kernel add" in info.ir_texts()


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_library_may_have_the_name_of_a_file_of_the_runtime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEC_CACHE", "0")
    monkeypatch.setattr(runtime, "_met", {})
    spec = replace(sample_spec(native_host()), name="runtime")
    assert elf.read(write_package(spec, tmp_path).library).soname == "libruntime.so.1"


def test_two_folders_give_the_same_bytes(sample: BuildReport, tmp_path: Path) -> None:
    again = write_package(sample_spec(native_host()), tmp_path / "another" / "place", static=True)
    files = [path.relative_to(sample.out_dir) for path in sample.out_dir.rglob("*") if path.is_file()]
    assert len(files) == len(again.files)
    for file in files:
        digests = [
            hashlib.sha256((root / file).read_bytes()).hexdigest() for root in (sample.out_dir, again.out_dir)
        ]
        assert digests[0] == digests[1], file


def test_library_holds_no_folder_names(sample: BuildReport) -> None:
    data = sample.library.read_bytes()
    assert str(sample.out_dir).encode() not in data
    assert str(Path(__file__).parents[2]).encode() not in data
