"""One package with a library for each of several hosts."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from samples import sample_spec

from tilec.errors import LibraryError
from tilec.package.bindings.wheel import platform_tag
from tilec.package.library import inspect
from tilec.package.library.inspect import find_library
from tilec.package.operators.onnxruntime import write_operators
from tilec.package.write import BuildReport, write_packages
from tilec.portable.loader import load
from tilec.targets import Host, native_host, parse_host

HERE = native_host()
HOSTS = (HERE, parse_host("aarch64-macos.12"), parse_host("x86_64-windows"))
#: What a package has for each host: its folder and the library there.
LIBRARIES = {
    HOSTS[0]: (f"{HERE.arch}-linux", ("libsample.so", "libsample.so.1")),
    HOSTS[1]: ("aarch64-macos", ("libsample.dylib",)),
    HOSTS[2]: ("x86_64-windows", ("sample.dll", "sample.lib")),
}


@pytest.fixture(scope="module", params=[2, pytest.param(3, marks=pytest.mark.slow)])
def hosts(request: pytest.FixtureRequest) -> tuple[Host, ...]:
    """Some of the hosts, or all: for Windows zig first compiles a C library, in one process here."""
    return HOSTS[: request.param]


@pytest.fixture(scope="module")
def reports(hosts: tuple[Host, ...], tmp_path_factory: pytest.TempPathFactory) -> tuple[BuildReport, ...]:
    return write_packages([sample_spec(host) for host in hosts], tmp_path_factory.mktemp("several"))


def test_each_host_has_a_folder(hosts: tuple[Host, ...], reports: tuple[BuildReport, ...]) -> None:
    root = reports[0].out_dir
    files = {
        path.relative_to(root / "lib").as_posix() for path in (root / "lib").rglob("*") if path.is_file()
    }
    assert files == {
        *("cmake/sample/sampleConfig.cmake", "cmake/sample/sampleConfigVersion.cmake"),
        *(
            f"{folder}/{name}"
            for folder, names in map(LIBRARIES.get, hosts)
            for name in (*names, "metadata.json", "pkgconfig/sample.pc")
        ),
    }


def test_all_are_of_the_build_that_the_header_names(reports: tuple[BuildReport, ...]) -> None:
    (build_id,) = {report.build_id for report in reports}
    assert build_id in (reports[0].out_dir / "include" / "sample.h").read_text()


def test_the_loader_takes_the_library_of_this_machine(reports: tuple[BuildReport, ...]) -> None:
    assert load(reports[0].out_dir).path == reports[0].library


def test_what_is_inspected_is_what_loads(reports: tuple[BuildReport, ...]) -> None:
    assert find_library(reports[0].out_dir) == reports[0].library


def test_inspect_asks_which_one(reports: tuple[BuildReport, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspect, "own_folder", lambda: "riscv64-linux")
    with pytest.raises(LibraryError, match=f"holds {len(reports)} libraries") as refused:
        find_library(reports[0].out_dir)
    assert all(str(report.library) in refused.value.remedy for report in reports)


@pytest.mark.parametrize("hosts", [pytest.param(3, marks=pytest.mark.slow)], indirect=True)
def test_each_host_has_operators_of_its_own(
    hosts: tuple[Host, ...], reports: tuple[BuildReport, ...], tmp_path: Path
) -> None:
    shutil.copytree(reports[0].out_dir, tmp_path, dirs_exist_ok=True, symlinks=True)
    copies = [
        replace(each, out_dir=tmp_path, library=tmp_path / each.library.relative_to(each.out_dir))
        for each in reports
    ]
    found = write_operators([sample_spec(host) for host in hosts], copies)
    assert [path.relative_to(tmp_path / "lib").as_posix() for path in found] == [
        f"{HERE.arch}-linux/libsample_onnxruntime.so",
        "aarch64-macos/libsample_onnxruntime.dylib",
        "x86_64-windows/sample_onnxruntime.dll",
    ]
    linux, macos, windows = (path.read_bytes() for path in found)
    assert b"$ORIGIN" in linux
    assert b"libsample.so.1" in linux
    assert b"@loader_path" in macos
    assert b"@rpath/libsample" in macos
    assert b"sample.dll" in windows
    assert b"RegisterCustomOps" in windows


def test_tags_of_wheels() -> None:
    tags = [platform_tag(sample_spec(host), b"") for host in HOSTS]
    assert tags == [f"manylinux_2_17_{HERE.arch}", "macosx_12_0_arm64", "win_amd64"]


@pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not installed")
@pytest.mark.parametrize(
    ("system", "processor", "found"),
    [
        ("Linux", HERE.arch, f"lib/{HERE.arch}-linux/libsample.so"),
        ("Darwin", "arm64", "lib/aarch64-macos/libsample.dylib"),
        ("Windows", "AMD64", "lib/x86_64-windows/sample.dll"),
        ("Windows", "ARM64", None),
    ],
)
def test_cmake_takes_the_one_that_is_built_for(
    hosts: tuple[Host, ...],
    reports: tuple[BuildReport, ...],
    tmp_path: Path,
    system: str,
    processor: str,
    found: str | None,
) -> None:
    if found is not None and found.split("/")[1] not in [LIBRARIES[host][0] for host in hosts]:
        found = None
    config = reports[0].out_dir / "lib" / "cmake" / "sample" / "sampleConfig.cmake"
    script = tmp_path / "look.cmake"
    script.write_text(
        f'set(CMAKE_SYSTEM_NAME "{system}")\nset(CMAKE_SYSTEM_PROCESSOR "{processor}")\n'
        "function(add_library)\nendfunction()\n"
        'function(set_target_properties)\n  message("${ARGV}")\nendfunction()\n'
        f'include("{config}")\nmessage("found: ${{sample_FOUND}}")\n'
    )
    said = subprocess.run(["cmake", "-P", str(script)], capture_output=True, text=True, check=True).stderr
    places = re.findall(r"IMPORTED_LOCATION;[^;]*/(lib/[^;]*)", said)
    assert places == ([found] if found else [])
    assert ("found: FALSE" in said) == (found is None)


@pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not installed")
@pytest.mark.parametrize(("flag", "named"), [("", False), ("-Wl,-rpath,", True)])
def test_cmake_that_knows_no_run_paths_is_told_no_name_with_one(
    reports: tuple[BuildReport, ...], tmp_path: Path, flag: str, named: bool
) -> None:
    """On Linux CMake has no such flag for macOS, and fails over @rpath."""
    config = reports[0].out_dir / "lib" / "cmake" / "sample" / "sampleConfig.cmake"
    script = tmp_path / "look.cmake"
    script.write_text(
        'set(CMAKE_SYSTEM_NAME "Darwin")\nset(CMAKE_SYSTEM_PROCESSOR "arm64")\nset(APPLE 1)\n'
        f'set(CMAKE_SHARED_LIBRARY_RUNTIME_C_FLAG "{flag}")\n'
        "function(add_library)\nendfunction()\n"
        'function(set_target_properties)\n  message("${ARGV}")\nendfunction()\n'
        f'include("{config}")\n'
    )
    said = subprocess.run(["cmake", "-P", str(script)], capture_output=True, text=True, check=True).stderr
    assert ("IMPORTED_SONAME;@rpath/libsample.dylib" in said) == named
