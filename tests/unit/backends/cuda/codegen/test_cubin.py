"""What a cubin says of its kernels, beside the assembler's own words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from device_kernels import add, require_compiler

from tilec.backends.cuda.codegen import images as cuda
from tilec.backends.cuda.codegen.compilers import Compiled, Nvrtc, find_compiler
from tilec.backends.cuda.codegen.cubin import read_cubin
from tilec.backends.cuda.codegen.ptxas_report import parse_report
from tilec.targets import CUDA_TARGETS, parse_target

SOURCE = """
extern "C" __global__ void plain(float *a) { a[threadIdx.x] = 1; }
extern "C" __global__ void shared(float *a) {
  __shared__ float tile[64];
  tile[threadIdx.x] = a[threadIdx.x];
  __syncthreads();
  a[threadIdx.x] = tile[63 - threadIdx.x];
}
extern "C" __global__ void indexed(float *a, int at) {
  float kept[40];
  for (int i = 0; i < 40; i++) kept[i] = a[i];
  for (int i = 0; i < at; i++) kept[(at * i) % 40] += kept[i % 40];
  a[threadIdx.x] = kept[at];
}
"""
CUBINS = [name for name in CUDA_TARGETS if name.startswith("sm_")]


@pytest.mark.nvrtc
@pytest.mark.parametrize("target", CUBINS)
def test_it_says_what_the_assembler_reports(target: str) -> None:
    require_compiler(target)
    made = find_compiler(target).compile(SOURCE, target)
    reported = parse_report(made.log)
    assert read_cubin(made.code) == {name: replace(one, spills=None) for name, one in reported.items()}
    assert (reported["shared"].static_shared, reported["indexed"].stack) == (256, 160)


def test_other_bytes_say_nothing() -> None:
    assert read_cubin(b".version 8.8\0") == {}


class SilentCompiler:
    """A compiler that found its work in a cache: code without the assembler's report."""

    kind = "nvrtc"

    def __init__(self) -> None:
        self._real = find_compiler()
        self.version = self._real.version

    def compile(self, source: str, arch: str, flags: Any = ()) -> Compiled:
        return replace(self._real.compile(source, arch, flags), log="")


@pytest.mark.nvrtc
def test_a_missing_report_costs_the_note_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    target = parse_target("sm_90a")
    (reported,) = cuda.compile_kernel(add(), target, "p").launches
    silent = SilentCompiler()
    monkeypatch.setattr(cuda, "find_compiler", lambda _: silent)
    (launch,) = cuda.compile_kernel(add(), target, "p").launches
    assert launch.gpu == replace(reported.gpu, spills=None)
    assert "no report" in launch.notes[-1]


@pytest.mark.nvrtc
def test_nvrtc_is_kept_from_the_drivers_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = find_compiler()
    if not isinstance(compiler, Nvrtc) or compiler.version < (12, 9):
        pytest.skip("no NVRTC that has a cache")
    asked: list[bytes] = []
    compile_program = compiler._library.nvrtcCompileProgram

    def recorded(program: Any, count: int, options: Any) -> int:
        asked.extend(options)
        return int(compile_program(program, count, options))

    monkeypatch.setattr(compiler._library, "nvrtcCompileProgram", recorded)
    monkeypatch.setattr("tilec.backends.cuda.codegen.compilers.apart", lambda work: work())
    compiler.compile(SOURCE, "sm_80", ["--no-cache"])
    compiler.compile(SOURCE, "sm_80")
    assert asked.count(b"--no-cache") == 2
