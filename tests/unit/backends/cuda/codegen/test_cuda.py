"""CUDA images of device functions written by hand; no GPU and no driver are needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from device_kernels import add, require_compiler

from tilec.backends.cuda.codegen import images as cuda
from tilec.backends.cuda.codegen.compilers import Compiled, find_compiler
from tilec.backends.cuda.codegen.header import header
from tilec.backends.cuda.codegen.ptxas_report import parse_report
from tilec.errors import CompileError, UnsupportedError
from tilec.targets import CUDA_TARGETS, parse_target

SM80, SM90A = parse_target("sm_80"), parse_target("sm_90a")


def test_source_has_the_documented_parameters_and_no_include():
    text = cuda.source(add("float16"), SM80, "p")
    assert "#include" not in text
    parameters = "half* __restrict__ A, half* __restrict__ B, half* __restrict__ C, float alpha, int64_t N"
    assert f"__launch_bounds__(256) p_0({parameters})" in text


def test_source_is_the_same_every_time():
    assert cuda.source(add("bfloat16"), SM90A, "p") == cuda.source(add("bfloat16"), SM90A, "p")


def test_headers_of_unknown_types_are_refused():
    with pytest.raises(UnsupportedError, match="fp6"):
        header(["cuda", "fp6"])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"shared_bytes": 163 * 1024 + 16}, "166928 bytes of shared memory in a block, sm_80 has 166912"),
        ({"threads": (32, 32, 2)}, "2048 threads in a block, sm_80 has 1024"),
        ({"cluster": (2, 1, 1)}, "2 blocks in a cluster, sm_80 has 1"),
    ],
)
def test_limits_are_checked_before_any_compiler_runs(monkeypatch, fields, message):
    monkeypatch.setattr(cuda, "find_compiler", lambda _: pytest.fail("a compiler was asked for"))
    with pytest.raises(CompileError, match=message):
        cuda.compile_kernel(add(**fields), SM80, "p")


@pytest.mark.nvrtc
@pytest.mark.parametrize("target", CUDA_TARGETS)
def test_every_target_has_an_image(target):
    require_compiler(target)
    image = cuda.compile_kernel(add(), parse_target(target), "p")
    (launch,) = image.launches
    assert (launch.symbol, launch.threads, launch.grid) == ("p_0", (256, 1, 1), ("(N + 1023) // 1024",))
    if target.startswith("sm_"):
        assert image.code[:4] == b"\x7fELF"
        assert 8 <= launch.gpu.registers <= 64
        assert (launch.gpu.spills, launch.gpu.static_shared, image.min_driver % 1000) == (0, 0, 0)
    else:
        assert f".target {target.replace('compute', 'sm')}" in image.code.decode()
        assert image.code.endswith(b"\0")
        assert launch.gpu.registers is None
        major, minor = find_compiler(target).version
        assert image.min_driver == 1000 * major + 10 * minor


@pytest.mark.nvrtc
def test_images_are_byte_stable():
    assert cuda.compile_kernel(add(), SM90A, "p") == cuda.compile_kernel(add(), SM90A, "p")


@pytest.mark.nvrtc
@pytest.mark.parametrize(("dtype", "ptx"), [("float16", "f16"), ("bfloat16", "bf16")])
def test_small_floats_compile_without_headers(dtype, ptx):
    assert f"cvt.rn.{ptx}.f32" in cuda.assembly(add(dtype), SM80, "p")


@pytest.mark.nvrtc
def test_the_compilers_words_reach_the_error():
    with pytest.raises(CompileError) as caught:
        find_compiler().compile("nonsense;", "sm_80")
    assert "nonsense" in caught.value.why


class ReportingCompiler:
    """Makes no code, and reports the shared memory and spills of `REPORT`."""

    kind, version = "nvrtc", (12, 9)

    def compile(self, source: str, arch: str, flags: Sequence[str] = ()) -> Compiled:
        return Compiled(b"", REPORT.format(name="p_0"))


def test_static_and_dynamic_shared_memory_share_one_limit(monkeypatch):
    monkeypatch.setattr(cuda, "find_compiler", lambda _: ReportingCompiler())
    assert cuda.compile_kernel(add(shared_bytes=1024), SM80, "p").launches[0].gpu.static_shared == 256
    with pytest.raises(CompileError, match="166984 bytes of shared memory"):
        cuda.compile_kernel(add(shared_bytes=166728), SM80, "p")


def test_programmatic_launches_must_wait(monkeypatch):
    lowered = add()
    early = replace(lowered, launches=(replace(lowered.launches[0], programmatic=True),))
    monkeypatch.setattr(cuda, "find_compiler", lambda _: ReportingCompiler())
    with pytest.raises(CompileError) as caught:
        cuda.compile_kernel(early, SM90A, "p")
    assert "no griddepcontrol.wait" in caught.value.why
    monkeypatch.setattr(cuda, "source", lambda *_: "griddepcontrol.wait")
    assert cuda.compile_kernel(early, SM90A, "p").launches[0].gpu.programmatic
    with pytest.raises(CompileError) as caught:
        cuda.compile_kernel(early, SM80, "p")
    assert "sm_90" in caught.value.why


def test_spills_are_said(monkeypatch):
    monkeypatch.setattr(cuda, "find_compiler", lambda _: ReportingCompiler())
    assert "slow: 12 bytes" in cuda.compile_kernel(add(), SM80, "p").launches[0].roads


REPORT = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '{name}' for 'sm_80'
ptxas info    : Function properties for {name}
ptxas         .     16 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 12 registers, used 1 barriers, 256 bytes smem, 368 bytes cmem[0]
"""


def test_reports_are_read_kernel_by_kernel():
    other = REPORT.replace(", 256 bytes smem", "").replace("12 reg", "40 reg")
    found = parse_report(REPORT.format(name="k") + other.format(name="other"))
    assert list(found) == ["k", "other"]
    expected = {"registers": 12, "stack": 16, "spills": 12, "static_shared": 256, "warnings": ()}
    assert vars(found["k"]) == expected
    assert (found["other"].registers, found["other"].static_shared) == (40, 0)
    assert parse_report("ptxas info : 0 bytes gmem") == {}
