"""One package with a library for each of several hosts."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from samples import sample_spec

from tilec.package.inspect import find_library
from tilec.package.wheel import platform_tag
from tilec.package.write import BuildReport, write_packages
from tilec.portable.loader import load
from tilec.targets import native_host, parse_host

HERE = native_host()
HOSTS = (HERE, parse_host("aarch64-macos.12"), parse_host("x86_64-windows"))


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> tuple[BuildReport, ...]:
    specs = [sample_spec(host) for host in HOSTS]
    return write_packages(specs, tmp_path_factory.mktemp("several"))


def test_each_host_has_a_folder(reports: tuple[BuildReport, ...]) -> None:
    root = reports[0].out_dir
    files = {
        path.relative_to(root / "lib").as_posix() for path in (root / "lib").rglob("*") if path.is_file()
    }
    own = f"{HERE.arch}-linux"
    assert files == {
        *("cmake/sample/sampleConfig.cmake", "cmake/sample/sampleConfigVersion.cmake"),
        *(f"{own}/{name}" for name in ("libsample.so", "libsample.so.1")),
        *("aarch64-macos/libsample.dylib", "x86_64-windows/sample.dll", "x86_64-windows/sample.lib"),
        *(f"{each}/metadata.json" for each in (own, "aarch64-macos", "x86_64-windows")),
        *(f"{each}/pkgconfig/sample.pc" for each in (own, "aarch64-macos", "x86_64-windows")),
    }


def test_all_are_of_the_build_that_the_header_names(reports: tuple[BuildReport, ...]) -> None:
    (build_id,) = {report.build_id for report in reports}
    assert build_id in (reports[0].out_dir / "include" / "sample.h").read_text()


def test_the_loader_takes_the_library_of_this_machine(reports: tuple[BuildReport, ...]) -> None:
    assert load(reports[0].out_dir).path == reports[0].library


def test_inspect_asks_which_one(reports: tuple[BuildReport, ...]) -> None:
    with pytest.raises(Exception, match="holds 3 libraries"):
        find_library(reports[0].out_dir)


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
    reports: tuple[BuildReport, ...], tmp_path: Path, system: str, processor: str, found: str | None
) -> None:
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
