"""The spellings of targets and options."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import inprocess_kernels as kernels
import numpy as np
import pytest

import tilec
import tilec.language as T
from tilec.backends.cuda import driver
from tilec.backends.hip import driver as hip
from tilec.errors import CompileError, EnvironmentError_, InputError, UnsupportedError
from tilec.inprocess import sass, targets
from tilec.inprocess.options import Options
from tilec.portable.devices.hip import HipDevice
from tilec.targets import native_target, parse_target

torch = pytest.importorskip("torch")

NATIVE = native_target().name


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        (None, NATIVE),
        ("cpu", NATIVE),
        ("c", NATIVE),
        ("llvm", NATIVE),
        ("llvm -mcpu=native -num-cores=4", NATIVE),
        ("llvm -mcpu=skylake", "x86-64-v3"),
        ("llvm -mcpu=x86-64-v4+vnni", "x86-64-v4+vnni"),
        ("llvm -mcpu=znver5", "x86-64-v4+vnni+avx512bf16+zen4"),
        ({"kind": "llvm", "mcpu": "icelake-server"}, "x86-64-v4+vnni"),
        ({"kind": "c"}, NATIVE),
        ("native", NATIVE),
        ("sm_90", "sm_90a"),
        ("x86-64-v3", "x86-64-v3"),
        ("sm_80", "sm_80"),
        ("cuda -arch=sm_90a", "sm_90a"),
        ("hip -mcpu=gfx942", "gfx942"),
        ({"kind": "rocm", "mcpu": "gfx1100"}, "gfx1100"),
        ("cuda -arch=sm_90", "sm_90a"),
        ({"kind": "cuda", "arch": "sm_80"}, "sm_80"),
        ('{"kind": "cuda", "arch": "sm_86"}', "sm_86"),
        (SimpleNamespace(kind=SimpleNamespace(name="cuda"), arch="sm_89"), "sm_89"),
    ],
)
def test_spellings(spec: Any, name: str) -> None:
    assert targets.resolve_target(spec).name == name


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        *((vendor, UnsupportedError) for vendor in ("metal", "webgpu", "cutedsl")),
        *((vendor, EnvironmentError_) for vendor in ("hip", "rocm")),
        *((spec, InputError) for spec in ("cudaa", 3, " ", "llvm -mcpu=abacus", "cuda -arch=sm_70")),
    ],
)
def test_what_is_no_target(spec: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        targets.resolve_target(spec)


@pytest.mark.parametrize(
    ("spec", "remedy"),
    [
        ("cpuu", 'did you mean "cpu"?'),
        ("CUDA", 'did you mean "cuda"?'),
        ("atuo", 'did you mean "auto"?'),
        ("x86-64-v9", "did you mean 'x86-64-v4'? known here: "),
        ("sm_9x", 'did you mean "sm_90"?'),
        ("{bad", 'write for example {"kind": "cuda", "arch": "sm_90a"}'),
    ],
)
def test_slips_are_told_with_what_was_meant(spec: str, remedy: str) -> None:
    with pytest.raises(InputError) as caught:
        targets.resolve_target(spec)
    assert caught.value.remedy is not None
    assert caught.value.remedy.startswith(remedy)


def test_targets_of_tvm() -> None:
    tvm = pytest.importorskip("tvm")
    assert targets.resolve_target(tvm.target.Target("llvm")).name == NATIVE
    assert targets.resolve_target(tvm.target.Target({"kind": "llvm", "mcpu": "haswell"})).name == "x86-64-v3"
    assert targets.resolve_target(tvm.target.Target({"kind": "cuda", "arch": "sm_86"})).name == "sm_86"


@pytest.fixture(autouse=True)
def nothing_is_known_of_devices() -> None:
    """Tests before these may have had a stand-in for the driver."""
    driver.target_here.cache_clear()


def test_an_architecture_that_tvm_makes_up_names_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "cuda_devices", lambda: 0)
    found = SimpleNamespace(kind=SimpleNamespace(name="cuda"), attrs={"arch": "sm_50"})
    with pytest.raises(EnvironmentError_, match="this machine has none"):
        targets.resolve_target(found)


def test_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "cuda_devices", lambda: 0)
    assert targets.resolve_target("auto").name == NATIVE
    with pytest.raises(EnvironmentError_, match="this machine has none"):
        targets.resolve_target("cuda")


@pytest.mark.parametrize(
    ("capability", "name"),
    [
        *((80, "sm_80"), (86, "sm_86"), (87, "sm_86"), (89, "sm_89"), (90, "sm_90a"), (100, "sm_100a")),
        *((121, "sm_121a"), (122, "sm_121f"), (130, "compute_120")),
    ],
)
def test_the_best_target_of_a_device(monkeypatch: pytest.MonkeyPatch, capability: int, name: str) -> None:
    found = {75: capability // 10, 76: capability % 10}
    monkeypatch.setattr(driver, "cuda_devices", lambda: 1)
    monkeypatch.setattr(driver, "device_attribute", lambda number, device: found[number])
    driver.target_here.cache_clear()
    assert targets.resolve_target("auto").name == targets.resolve_target("cuda").name == name
    driver.target_here.cache_clear()


@pytest.mark.parametrize("arch", ["gfx1201", "gfx906"])
def test_the_target_of_an_amd_gpu(monkeypatch: pytest.MonkeyPatch, arch: str) -> None:
    monkeypatch.setattr(hip, "hip_devices", lambda: 1)
    monkeypatch.setattr(HipDevice, "facts", lambda self: {"arch": arch})
    hip.target_here.cache_clear()
    if arch == "gfx906":
        with pytest.raises(EnvironmentError_, match="is a gfx906, tilec compiles for gfx950, gfx942"):
            targets.resolve_target("hip")
        return
    assert targets.resolve_target("auto").name == targets.resolve_target("hip").name == arch
    hip.target_here.cache_clear()


def test_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TILEC_TARGET")
    monkeypatch.setenv("TILELANG_TARGET", "sm_80")
    assert targets.resolve_target().name == "sm_80"
    monkeypatch.setenv("TILEC_TARGET", "x86-64-v2")
    assert targets.resolve_target().name == "x86-64-v2"
    monkeypatch.setenv("TILELANG_VERBOSE", "on")
    assert Options.of({}).verbose
    assert not Options.of({"verbose": False}).verbose
    monkeypatch.setenv("TILELANG_VERBOSE", "0")
    assert not Options.of({}).verbose
    monkeypatch.setenv("TILELANG_PRINT_ON_COMPILATION", "1")
    assert Options.of({}).verbose
    monkeypatch.setenv("TILEC_VERBOSE", "off")
    assert not Options.of({}).verbose
    monkeypatch.setenv("TILELANG_EXECUTION_BACKEND", "torch")
    with pytest.raises(UnsupportedError, match="execution_backend 'torch'"):
        Options.of({})
    monkeypatch.setenv("TILEC_EXECUTION_BACKEND", "cython")
    Options.of({})


def test_backends() -> None:
    for name in (None, "auto", "tvm_ffi", "cython", "nvrtc", "dlpack", "ctypes"):
        Options.of({"execution_backend": name})
    with pytest.raises(ValueError, match="unknown execution_backend 'magic'"):
        Options.of({"execution_backend": "magic"})
    with pytest.raises(UnsupportedError):
        Options.of({"execution_backend": "torch"})


def test_unknown_pass_configs_are_said_once() -> None:
    key = tilec.PassConfigKey.TL_DISABLE_WARP_SPECIALIZED
    Options.of({"pass_configs": {key: True, "tl.disable_tma_lower": True}})
    with pytest.warns(UserWarning, match="unknown key tl.never_heard"):
        Options.of({"pass_configs": {"tl.never_heard": 1}})


def _check_sass(kernel: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disassembler gets the image of the library."""
    tool = folder / "bin" / "nvdisasm"
    tool.parent.mkdir()
    tool.write_text('#!/bin/sh\nhead -c 4 "$2" | tail -c 3\necho " by $1"\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", "/bin:/usr/bin")
    monkeypatch.setenv("CUDA_HOME", str(folder / "none"))
    monkeypatch.setattr(sass, "_PACKAGES", ())
    with pytest.raises(EnvironmentError_, match="nvdisasm or cuobjdump"):
        kernel.show_sass()
    monkeypatch.setenv("CUDA_HOME", str(folder))
    kernel.export_sass(folder / "axpy.sass")
    assert (folder / "axpy.sass").read_text() == "ELF by --print-code\n"
    tool.write_text("#!/bin/sh\necho no such architecture >&2\nexit 1\n")
    with pytest.raises(CompileError, match="nvdisasm cannot read"):
        kernel.show_sass()


def test_a_cross_target_gives_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("nvidia.cuda_nvrtc")
    kernel = tilec.jit(kernels.axpy.func, out_idx=[-1], target="cuda -arch=sm_80").compile(64)
    assert kernel.target == parse_target("sm_80")
    assert "__global__" in kernel.get_kernel_source()
    for array in (np.ones(64, np.float32), torch.ones(64)):
        with pytest.raises(ValueError, match="no code for CPUs, and the tensors are in host memory"):
            kernel(array, 1.0)
    _check_sass(kernel, tmp_path, monkeypatch)
    kernel.export_ptx(tmp_path / "axpy.ptx")
    assert ".target sm_80" in (tmp_path / "axpy.ptx").read_text()
    assert kernel.n_regs
    assert kernel.n_spills == 0


def _served(kernel: Any) -> list[tuple[dict[str, str], list[str]]]:
    """What each variant serves: guards of dims, and tensors that begin at vectors."""
    variants = kernel._kernel.metadata["variants"]
    return [
        ({dim: guard["text"] for dim, guard in found["guards"].items()}, list(found["align"]))
        for found in variants
    ]


def test_sizes_that_are_multiples_have_code_of_their_own() -> None:
    """Rows of any length keep a GPU from vectors. Calls whose sizes allow them have a variant for it; rows of
    known length, and CPUs, need none."""
    pytest.importorskip("nvidia.cuda_nvrtc")
    rows, cols = T.dynamic("rows"), T.dynamic("cols")
    kernel = tilec.compile(kernels.matrix_doubled(rows, cols), target="sm_80")
    assert _served(kernel) == [({"cols": "%8"}, ["X", "Y"]), ({}, [])]
    told = [line for line in kernel.get_kernel_source().splitlines() if line.startswith("// ")]
    assert told[0] == "// cols %8"
    assert "// all other sizes" in told
    assert kernel.n_regs
    wide = tilec.compile(kernels.matrix_doubled(rows, cols, dtype="float32"), target="sm_80")
    assert _served(wide) == [({"cols": "%4"}, ["X", "Y"]), ({}, [])]
    assert len(_served(tilec.compile(kernels.matrix_doubled(rows, 1024), target="sm_80"))) == 1
    assert len(_served(tilec.compile(kernels.matrix_doubled(rows, cols), target="x86-64-v3"))) == 1


def test_tensors_of_one_axis_need_hold_a_vector_alone() -> None:
    """Their ends are tested; but a dim that is the pitch of rows too is a multiple."""
    pytest.importorskip("nvidia.cuda_nvrtc")
    count = T.dynamic("count")
    kernel = tilec.compile(kernels.vector_doubled(count), target="sm_80")
    assert _served(kernel) == [({"count": ">=8"}, ["X", "Y"]), ({}, [])]
    assert "// count >=8" in kernel.get_kernel_source().splitlines()
    scaled = tilec.compile(kernels.columns_scaled(count), target="sm_80")
    assert _served(scaled) == [({"count": "%8"}, ["X", "S", "Y"]), ({}, [])]
