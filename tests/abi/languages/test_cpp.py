"""The C++17 header, of two libraries in one program, found by path, by CMake and by pkg-config in install
prefixes that were moved."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import elf
import pytest
from c_programs import PROGRAMS, WARNINGS
from samples import sample_spec, scalar, tensor

from tilec.package.bindings.c import header_source
from tilec.package.bindings.cpp import cpp_header_source
from tilec.package.model import DimRecord, KernelRecord, PackageSpec
from tilec.package.write import BuildReport, write_package
from tilec.targets import native_host

CXX = shutil.which("c++")
pytestmark = pytest.mark.skipif(CXX is None, reason="no C++ compiler (c++)")
NAMES = ("sample", "other")


@pytest.fixture(scope="module")
def prefixes(sample: BuildReport, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Where the two packages lie after they were moved."""
    folder = tmp_path_factory.mktemp("built")
    shutil.copytree(sample.out_dir, folder / "sample", symlinks=True)
    write_package(sample_spec(native_host(), "other"), folder / "other", static=True)
    moved = tmp_path_factory.mktemp("moved") / "some where"
    shutil.move(folder, moved)
    return [moved / name for name in NAMES]


def run(command: Sequence[str | Path], **environment: str) -> str:
    """What a command prints; the test fails with its errors where it fails."""
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def compile_program(folder: Path, *flags: str | Path) -> Path:
    """programs/typed.cpp with every warning an error, and a second file that includes the same headers."""
    out, second = folder / "typed", folder / "second.cpp"
    second.write_text("".join(f"#include <{name}.hpp>\n" for name in NAMES))
    run([str(CXX), "-std=c++17", *WARNINGS, "-O1", PROGRAMS / "typed.cpp", second, "-o", out, *flags])
    return out


@pytest.mark.parametrize("static", [False, True], ids=["shared", "static"])
def test_typed_views(prefixes: list[Path], tmp_path: Path, static: bool) -> None:
    flags: list[str | Path] = [f"-I{prefix / 'include'}" for prefix in prefixes]
    for name, prefix in zip(NAMES, prefixes, strict=True):
        flags += [prefix / "lib" / f"lib{name}{'.a' if static else '.so'}", f"-Wl,-rpath,{prefix / 'lib'}"]
    assert run([compile_program(tmp_path, *flags, "-lpthread", "-ldl", "-lm")]) == "ok\n"


@pytest.mark.skipif(shutil.which("cmake") is None, reason="no cmake")
def test_cmake_finds_a_moved_package(prefixes: list[Path], tmp_path: Path) -> None:
    search = ";".join(map(str, prefixes))
    run(["cmake", "-S", PROGRAMS, "-B", tmp_path, f"-DCMAKE_PREFIX_PATH={search}"])
    run(["cmake", "--build", tmp_path])
    assert [run([tmp_path / name]) for name in ("typed", "typed_static", "plan")] == ["ok\n"] * 3
    needed = {name: elf.read(tmp_path / name).needed for name in ("typed", "typed_static")}
    assert {"libsample.so.1", "libother.so.1"} <= set(needed["typed"])
    assert not any("sample" in name or "other" in name for name in needed["typed_static"])


@pytest.mark.skipif(shutil.which("pkg-config") is None, reason="no pkg-config")
def test_pkg_config_finds_a_moved_package(prefixes: list[Path], tmp_path: Path) -> None:
    search = ":".join(str(prefix / "lib" / "pkgconfig") for prefix in prefixes)
    flags = shlex.split(run(["pkg-config", "--cflags", "--libs", *NAMES], PKG_CONFIG_PATH=search))
    libraries = ":".join(str(prefix / "lib") for prefix in prefixes)
    assert run([compile_program(tmp_path, *flags)], LD_LIBRARY_PATH=libraries) == "ok\n"


@pytest.mark.skipif(shutil.which("pkg-config") is None, reason="no pkg-config")
def test_pkg_config_links_the_archives(prefixes: list[Path], tmp_path: Path) -> None:
    search = ":".join(str(prefix / "lib" / "pkgconfig") for prefix in prefixes)
    flags = shlex.split(run(["pkg-config", "--static", "--cflags", "--libs", *NAMES], PKG_CONFIG_PATH=search))
    archives = [f"-l:lib{flag[2:]}.a" if flag[2:] in NAMES else flag for flag in flags]
    made = compile_program(tmp_path, *archives)
    assert run([made]) == "ok\n"
    assert not any("sample" in name for name in elf.read(made).needed)


#: Kernels with names of tilec.h and dlpack.h.
HEADER = {"TILEC_OK", "tilec_status", "tilec_exec", "tilec_kernel", "tilec_library", "DLDataType", "kDLCPU"}
#: A name that C++ reserves, a rank of 0, elements without a C++ type, a dim that no shape shows
CALL = """
#include <odd.hpp>
void call(const float* one, std::uint16_t* halves);
void call(const float* one, std::uint16_t* halves) {
  const tilec::tensor<std::uint16_t, 2> typed(halves, {4, 2});
  odd::new_({one, {}}, typed, 4, 2);
  odd::new_(tilec::tensor<const float, 0>(one, {}), {halves, {4, 2}}, 4, 2, nullptr);
  (void)odd::new_(std::nothrow, {one, {}}, typed, 4, 2);
  (void)odd::new_workspace(4, 2);
  odd::idle();
}
"""


def test_odd_signatures_compile(sample: BuildReport, tmp_path: Path) -> None:
    params = (tensor("x", "float32"), tensor("y", "float16", "n", "2", access="out"), scalar("n", "int32"))
    kernels = (
        KernelRecord("new", params, (DimRecord("n"), DimRecord("rows")), ()),
        KernelRecord("idle", (), (), ()),
        *(KernelRecord(name, params, (DimRecord("n"), DimRecord("rows")), ()) for name in sorted(HEADER)),
    )
    spec = PackageSpec("odd", "1.0", native_host(), kernels)
    (tmp_path / "odd.h").write_text(header_source(spec, "0"))
    (tmp_path / "odd.hpp").write_text(cpp_header_source(spec))
    (tmp_path / "call.cpp").write_text(CALL)
    folders = [f"-I{folder}" for folder in (tmp_path, sample.out_dir / "include")]
    run([str(CXX), "-std=c++17", *WARNINGS, "-fsyntax-only", *folders, tmp_path / "call.cpp"])


def test_older_standards_are_told_what_the_header_needs(sample: BuildReport, tmp_path: Path) -> None:
    (tmp_path / "old.cpp").write_text("#include <tilec/tilec.hpp>\n")
    command = [str(CXX), "-fsyntax-only", f"-I{sample.out_dir / 'include'}", str(tmp_path / "old.cpp")]
    refused = subprocess.run([*command, "-std=c++14"], capture_output=True, text=True, check=False)
    assert refused.returncode != 0
    first = next(line for line in refused.stderr.splitlines() if "error" in line)
    assert "tilec.hpp needs C++17" in first
    subprocess.run([*command, "-std=c++17"], check=True)
