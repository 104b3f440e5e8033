"""Libraries for Windows and macOS, cross-built: what a system sees of them, and under wine what they do."""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
import subprocess
from functools import cache
from pathlib import Path

import lief
import pytest
from c_programs import PROGRAMS, compile_program
from linked import link
from samples import sample_spec

from tilec.build.library import build
from tilec.codegen.toolchain import find_toolchain
from tilec.package.checks import exported_symbols
from tilec.package.library.inspect import read_library
from tilec.package.library.runtime import compile_c, runtime_source
from tilec.package.write import BuildReport, write_package
from tilec.portable.loader import LibraryError, damage_of, load, section_places
from tilec.targets import parse_host
from tilec.verify.audit import audit_library

pytestmark = pytest.mark.slow

WINDOWS = ["x86_64-windows", "aarch64-windows"]
MACOS = ["x86_64-macos.12", "aarch64-macos.12"]
#: What zig's linker exports of every Mach-O library.
LINKERS_OWN = {"___dso_handle", "__mh_dylib_header"}
SYSTEM_DLLS = ("api-ms-win-crt-", "kernel32")

needs_wine = pytest.mark.skipif(shutil.which("wine") is None, reason="wine (package wine64) is not installed")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hosts")


@cache
def public() -> set[str]:
    """The names that the sample's library has for its callers."""
    return set(exported_symbols(sample_spec()))


@cache
def built(folder: Path, host: str) -> BuildReport:
    """The sample's package for a host."""
    return write_package(sample_spec(parse_host(host)), folder / host)


@pytest.mark.parametrize("host", [*WINDOWS, *MACOS])
def test_runtime_compiles_without_a_warning(tmp_path: Path, host: str) -> None:
    spec = sample_spec(parse_host(host))
    text = tmp_path / "sample_runtime.c"
    text.write_text(runtime_source(spec))
    compile_c(find_toolchain(spec.host), text, tmp_path, ("-Werror",))


@pytest.mark.parametrize("host", [*WINDOWS, *MACOS])
def test_what_it_says_of_itself_is_read_back(folder: Path, host: str) -> None:
    report = built(folder, host)
    info = read_library(report.library)
    assert (info.metadata, info.arch) == (report.metadata, host.partition("-")[0])
    assert len(info.ir_texts()) == report.variants


@pytest.mark.parametrize("host", [*WINDOWS, *MACOS])
def test_what_can_be_audited_elsewhere_is(folder: Path, host: str) -> None:
    findings = audit_library(built(folder, host).library)
    assert [(each.what, each.problem) for each in findings] == [("digests", ""), ("tile IR", "")]


@pytest.mark.parametrize("host", [*WINDOWS, *MACOS])
def test_damage_is_seen(folder: Path, host: str) -> None:
    data = bytearray(built(folder, host).library.read_bytes())
    assert damage_of(data) == ""
    name = ".text" if host in WINDOWS else "__TEXT,__text"
    data[section_places(data)[name][0]] ^= 1
    assert damage_of(data) == f"{name} changed after it was built"


@pytest.mark.parametrize("host", ["x86_64-windows", "aarch64-macos.12"])
def test_two_folders_give_the_same_bytes(folder: Path, tmp_path: Path, host: str) -> None:
    again = write_package(sample_spec(parse_host(host)), tmp_path / "another" / "place")
    assert again.sha256 == built(folder, host).sha256


@pytest.mark.parametrize("host", [*WINDOWS, *MACOS])
def test_linux_says_what_it_is_for(folder: Path, host: str) -> None:
    system = "Windows" if host in WINDOWS else "Darwin"
    with pytest.raises(LibraryError, match=f"is for {system}, this is Linux"):
        load(built(folder, host).library)


@pytest.mark.parametrize("host", WINDOWS)
def test_dll_exports_the_public_names_and_needs_the_system_alone(folder: Path, host: str) -> None:
    library = lief.PE.parse(str(built(folder, host).library))
    assert {entry.name for entry in library.get_export().entries} == public()
    needed = {each.name.lower() for each in library.imports}
    assert all(name.startswith(SYSTEM_DLLS) for name in needed), needed


@pytest.mark.parametrize("host", MACOS)
def test_dylib_exports_the_public_names_and_needs_the_system_alone(folder: Path, host: str) -> None:
    library = lief.MachO.parse(str(built(folder, host).library)).at(0)
    exports = {each.symbol.name for each in library.dyld_info.exports}
    assert exports - LINKERS_OWN == {f"_{name}" for name in public()}
    assert [each.name for each in library.libraries] == [
        "@rpath/libsample.dylib",
        "/usr/lib/libSystem.B.dylib",
    ]
    assert list(library.build_version.minos) == [12, 0, 0]
    assert not library.rpaths


def test_apple_silicon_gets_a_signature_of_the_final_bytes(folder: Path) -> None:
    """Every page has the digest that the kernel compares when it maps the page."""
    path = built(folder, "aarch64-macos.12").library
    data = path.read_bytes()
    signature = lief.MachO.parse(str(path)).at(0).code_signature
    at = signature.data_offset + struct.unpack_from(">I", data, signature.data_offset + 16)[0]
    digests, _, _, pages, limit = struct.unpack_from(">IIIII", data, at + 16)
    size = 1 << data[at + 39]
    assert (limit, pages) == (signature.data_offset, -(-limit // size))
    for number in range(pages):
        page = data[size * number : min(limit, size * (number + 1))]
        start = at + digests + 32 * number
        assert data[start : start + 32] == hashlib.sha256(page).digest()


# ---- under wine ----


def run_wine(program: Path, *arguments: object, **environment: str) -> tuple[str, int]:
    """What a program says, and how it ends."""
    command = ["wine", str(program), *map(str, arguments)]
    around = {**os.environ, "WINEDEBUG": "-all", **environment}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env=around)
    return done.stdout.strip(), done.returncode


@needs_wine
def test_typed_door_under_wine(folder: Path, tmp_path: Path) -> None:
    report = built(folder, "x86_64-windows")
    linked = report.library.with_suffix(".lib")
    program = compile_program(
        report, linked, "typed.c", ("-std=c11",), tmp_path, parse_host("x86_64-windows")
    )
    shutil.copy(report.library, tmp_path)
    assert run_wine(program) == ("ok", 0)


@needs_wine
@pytest.mark.parametrize("threads", ["1", "3"])
def test_archive_needs_no_library_beside_under_wine(tmp_path: Path, threads: str) -> None:
    """Linkers know the one of WaitOnAddress by different names, zig's by none that others have."""
    host = parse_host("x86_64-windows")
    report = write_package(sample_spec(host), tmp_path / "package", static=True)
    program = compile_program(report, report.archive, "typed.c", ("-std=c11",), tmp_path, host)
    assert run_wine(program, TILEC_NUM_THREADS=threads) == ("ok", 0)


@needs_wine
@pytest.mark.parametrize("threads", ["1", "3"])
def test_quickstart_under_wine(folder: Path, tmp_path: Path, threads: str) -> None:
    """Code of TVM, loaded as loader.py does, called from threads that end."""
    manifest = folder / "windows.toml"
    text = (Path(__file__).parents[2] / "manifests" / "quickstart.toml").read_text()
    text = text.replace("x86_64-linux-gnu.2.17", "x86_64-windows")
    text = text.replace('["x86-64-v2", "x86-64-v3", "x86-64-v4"]', '["x86-64-v2"]')
    manifest.write_text(text.replace("../examples", str(Path(__file__).parents[2] / "examples")))
    report = build(manifest, folder / "quickstart").report
    program = tmp_path / "windows.exe"
    flags = ("-std=gnu11", "-Wall", "-Wextra", "-Werror", "-I", report.out_dir / "include")
    link(*flags, PROGRAMS / "windows.c", "-o", program, host=parse_host("x86_64-windows"))
    assert run_wine(program, report.library, TILEC_NUM_THREADS=threads) == ("ok", 0)
    below = run_wine(program, report.library, TILEC_CPU="x86-64-v9")
    assert below[1] == 1, "a machine below all targets is refused"
