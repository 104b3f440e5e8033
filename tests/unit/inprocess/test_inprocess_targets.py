"""The spellings of targets and options."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import inprocess_kernels as kernels
import numpy as np
import pytest

import tilec
from tilec.errors import EnvironmentError_, InputError, UnsupportedError
from tilec.inprocess import targets
from tilec.inprocess.options import Options
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
        ("llvm -mcpu=skylake", NATIVE),
        ("native", NATIVE),
        ("x86-64-v3", "x86-64-v3"),
        ("sm_80", "sm_80"),
        ("cuda -arch=sm_90a", "sm_90a"),
        ("cuda -arch=sm_90", "sm_90a"),
        ({"kind": "cuda", "arch": "sm_80"}, "sm_80"),
        ('{"kind": "cuda", "arch": "sm_86"}', "sm_86"),
        (SimpleNamespace(kind=SimpleNamespace(name="cuda"), arch="sm_89"), "sm_89"),
    ],
)
def test_spellings(spec: Any, name: str) -> None:
    assert targets.resolve_target(spec).name == name


@pytest.mark.parametrize(
    ("spec", "error"), [("hip", UnsupportedError), ("cudaa", InputError), (3, InputError)]
)
def test_what_is_no_target(spec: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        targets.resolve_target(spec)


def test_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "cuda_devices", lambda: 0)
    assert targets.resolve_target("auto").name == NATIVE
    with pytest.raises(EnvironmentError_, match="this machine has none"):
        targets.resolve_target("cuda")


@pytest.mark.parametrize(
    ("capability", "name"),
    [(80, "sm_80"), (86, "sm_86"), (87, "sm_86"), (89, "sm_89"), (90, "sm_90a"), (100, "compute_90")],
)
def test_the_best_target_of_a_device(monkeypatch: pytest.MonkeyPatch, capability: int, name: str) -> None:
    found = {75: capability // 10, 76: capability % 10}
    monkeypatch.setattr(targets, "cuda_devices", lambda: 1)
    monkeypatch.setattr(targets, "device_attribute", found.__getitem__)
    targets._cuda_here.cache_clear()
    assert targets.resolve_target("auto").name == targets.resolve_target("cuda").name == name
    targets._cuda_here.cache_clear()


def test_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TILEC_TARGET")
    monkeypatch.setenv("TILELANG_TARGET", "sm_80")
    assert targets.resolve_target().name == "sm_80"
    monkeypatch.setenv("TILEC_TARGET", "x86-64-v2")
    assert targets.resolve_target().name == "x86-64-v2"
    monkeypatch.setenv("TILELANG_VERBOSE", "on")
    assert Options.of({}).verbose
    assert not Options.of({"verbose": False}).verbose


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


def test_a_cross_target_gives_sources(tmp_path: Path) -> None:
    pytest.importorskip("nvidia.cuda_nvrtc")
    kernel = tilec.jit(kernels.axpy.func, out_idx=[-1], target="cuda -arch=sm_80").compile(64)
    assert kernel.target == parse_target("sm_80")
    assert "__global__" in kernel.get_kernel_source()
    for array in (np.ones(64, np.float32), torch.ones(64)):
        with pytest.raises(ValueError, match="no code for CPUs, and the tensors are in host memory"):
            kernel(array, 1.0)
    kernel.export_ptx(tmp_path / "axpy.ptx")
    assert ".target sm_80" in (tmp_path / "axpy.ptx").read_text()
    assert kernel.n_regs
    assert kernel.n_spills == 0
