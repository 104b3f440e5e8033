"""An nvcc in place of NVRTC: a stand-in program shows what it is asked."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tilec.backends.cuda.codegen import compilers as cuda_compilers
from tilec.backends.cuda.codegen.compilers import describe, find_compiler
from tilec.errors import CompileError, EnvironmentError_, InputError

NVCC = """#!/bin/sh
case "$*" in *--version) echo "Cuda compilation tools, release {release}, V{release}.1"; exit 0;; esac
grep -q broken kernel.cu && {{ echo "kernel.cu(1): error: broken" >&2; exit 2; }}
echo "ptxas info    : Used 8 registers" >&2
printf 'made by %s' "$*" > kernel.out
"""


@pytest.fixture
def nvcc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = tmp_path / "nvcc"
    program.write_text(NVCC.format(release="12.4"))
    program.chmod(0o755)
    monkeypatch.setenv("TILEC_NVCC", f"{program} -O3")
    return program


def test_the_setting_chooses_nvcc(nvcc: Path) -> None:
    compiler = find_compiler()
    assert (describe(compiler), compiler.version) == ("nvcc 12.4", (12, 4))


def test_cubins_come_with_the_assemblers_report(nvcc: Path) -> None:
    made = find_compiler().compile("int a;", "sm_90a")
    options = (
        "-O3 --gpu-architecture=sm_90a --cubin -std=c++17 --prec-div=false --prec-sqrt=false"
        " --ptxas-options=-v -o kernel.out kernel.cu"
    )
    assert made.code.decode() == f"made by {options}"
    assert "Used 8 registers" in made.log


def test_ptx_ends_with_a_nul(nvcc: Path) -> None:
    code = find_compiler().compile("int a;", "compute_80").code
    assert b"--ptx -std=c++17 --prec-div=false --prec-sqrt=false -o" in code
    assert code.endswith(b"\0")


def test_what_nvcc_says_is_the_reason(nvcc: Path) -> None:
    with pytest.raises(CompileError) as caught:
        find_compiler().compile("broken", "sm_80")
    assert "error: broken" in caught.value.why


def test_other_programs_are_no_nvcc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEC_NVCC", "true")
    with pytest.raises(EnvironmentError_, match="is no nvcc"):
        find_compiler()


@pytest.mark.parametrize("major", ["12", "13"])
def test_the_version_of_nvrtc_is_a_setting(major, monkeypatch):
    monkeypatch.setenv("TILEC_NVRTC", major)
    try:
        found = find_compiler()
    except EnvironmentError_:
        pytest.skip(f"NVRTC {major} is not installed")
    assert found.version[0] == int(major)


def test_a_version_of_nvrtc_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setenv("TILEC_NVRTC", "13")
    monkeypatch.setattr(cuda_compilers, "_package_folders", lambda package: [])
    cuda_compilers._nvrtc.cache_clear()
    with pytest.raises(EnvironmentError_) as caught:
        find_compiler()
    assert "asks for NVRTC 13" in caught.value.what
    assert "pip install nvidia-cuda-nvrtc" in caught.value.remedy


class Knowing:
    """A compiler for some capabilities."""

    kind = "nvrtc"

    def __init__(self, version: tuple[int, int], *capabilities: int) -> None:
        self.version, self._capabilities = version, capabilities

    def knows(self, arch: str) -> bool:
        return int(arch[3:6]) in self._capabilities


@pytest.fixture
def two_nvrtcs(monkeypatch: pytest.MonkeyPatch) -> None:
    both = {"12": Knowing((12, 9), 100, 120), "13": Knowing((13, 0), 100, 110, 120)}
    monkeypatch.setattr(cuda_compilers, "_nvrtc", lambda major: both[major or "12"])
    monkeypatch.setattr(cuda_compilers, "_is_installed", both.__contains__)


def test_another_nvrtc_serves_for_targets_that_the_first_does_not_know(two_nvrtcs):
    assert describe(find_compiler("sm_100a")) == "nvrtc 12.9"
    assert describe(find_compiler("sm_110f")) == "nvrtc 13.0"


def test_a_target_that_no_nvrtc_knows_says_what_to_install(two_nvrtcs, monkeypatch):
    with pytest.raises(EnvironmentError_, match=r"no CUDA compiler for sm_777: nvrtc 12.9 does not know it"):
        find_compiler("sm_777")
    monkeypatch.setenv("TILEC_NVRTC", "12")
    with pytest.raises(EnvironmentError_) as caught:
        find_compiler("sm_110a")
    assert caught.value.remedy == "pip install nvidia-cuda-nvrtc, and unset TILEC_NVRTC"


def test_an_unknown_version_of_nvrtc_is_refused(monkeypatch):
    monkeypatch.setenv("TILEC_NVRTC", "11")
    with pytest.raises(InputError, match="TILEC_NVRTC"):
        find_compiler()


@pytest.mark.parametrize("said", ["kernel.cu(1): error: broken", "ptxas fatal   : Insufficient registers"])
def test_what_a_compiler_refuses_begins_with_its_first_error(said: str, nvcc: Path) -> None:
    warnings = 'echo "kernel.cu(1): warning #177-D: unused" >&2\n' * 40
    program = nvcc.read_text().replace("grep -q broken", f"{warnings}grep -q broken", 1)
    nvcc.write_text(program.replace("kernel.cu(1): error: broken", said))
    with pytest.raises(CompileError, match=f"why: {re.escape(said)}"):
        find_compiler().compile("broken", "sm_90a")
