"""Functions of JAX on NVIDIA GPUs, without one: what is lowered, and what a handler asks of a driver."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_samples import cuda_spec, launch, record_kernel
from samples import tensor

from tilec.package.model import KernelRecord
from tilec.package.write import write_package
from tilec.portable.loader import load
from tilec.targets import native_host

jax = pytest.importorskip("jax")
pytest.importorskip("jax_tvm_ffi", reason="jax-tvm-ffi of PyPI is not installed")
jax_targets = pytest.importorskip("tilec.portable.jax_targets")

BEGIN = """
import ctypes, sys
import jax_tvm_ffi
import numpy as np
register, handlers = jax_tvm_ffi.register_ffi_target, {}
def noted(name, *args, platform="cpu", **how):
    handlers[name, platform] = register(name, *args, platform=platform, **how)
jax_tvm_ffi.register_ffi_target = noted

from tilec.portable.jax_ops import functions
from tilec.portable.loader import load
from xla_frames import Xla

made = functions(load(sys.argv[1]))
def handler(name): return handlers[made[name].target, "gpu"]
def log():
    dll = ctypes.CDLL("libcuda.so.1")
    dll.fake_cuda_log.restype = ctypes.c_char_p
    return dll.fake_cuda_log().decode().splitlines()
"""


def sums_kernel() -> KernelRecord:
    """An output beside the input, and a workspace."""
    made = record_kernel("sums", (launch("sums_0", ("N",)),), "4 * M")
    params = (tensor("x", "int32", "M", "N"), tensor("y", "int32", "M", access="out"))
    return replace(made, params=params)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    spec = cuda_spec(native_host())
    spec = replace(
        spec,
        name="jaxed_gpu",
        kernels=tuple(sorted((*spec.kernels, sums_kernel()), key=lambda each: each.name)),
    )
    return write_package(spec, tmp_path_factory.mktemp("jaxed_gpu")).library


@pytest.fixture(scope="module")
def functions(path: Path) -> Any:
    from tilec.portable.jax_ops import functions

    return functions(load(path))


def said(path: Path, driver: Path, script: str, capability: int = 90) -> list[str]:
    """The lines of a process of its own that has the stand-in driver."""
    search = os.pathsep.join((str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")))
    env = {
        **os.environ,
        "LD_LIBRARY_PATH": str(driver),
        "FAKE_CUDA": f"2 {capability} 12090",
        "PYTHONPATH": search,
    }
    command = [sys.executable, "-c", BEGIN + script, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_a_call_runs_on_the_device_and_the_stream_of_xla(path: Path, driver: Path) -> None:
    script = """
a, b, c = np.arange(100, dtype="float32"), np.ones(100, "float32"), np.zeros(100, "float32")
assert Xla(device=1, stream=0x20).call(handler("add"), [a, b], [c], {"alpha": np.float64(2)}) == ""
assert (c == a + 2).all()
print(log()[-1])
"""
    (line,) = said(path, driver, script)
    assert "launch add_sm_90a_0" in line
    assert "stream 0x20" in line


def test_the_workspace_is_the_last_result(path: Path, driver: Path) -> None:
    script = """
x, y = np.zeros((8, 100), "int32"), np.zeros(8, "int32")
print(Xla().call(handler("sums"), [x], [y, np.zeros(512, "uint8")]))
print(log()[-1])
print(Xla().call(handler("sums"), [x], [y, np.zeros(511, "uint8")]))
"""
    fine, launched, error = said(path, driver, script, capability=80)
    assert (fine, launched.split()[:2]) == ("", ["launch", "sums_0"])
    assert "512" in error


def test_errors_are_those_of_the_library(path: Path, driver: Path) -> None:
    script = """
a, b, c = np.zeros(8, "float32"), np.zeros(8, "int32"), np.zeros(8, "float32")
print(Xla().call(handler("add"), [a, b], [c], {"alpha": np.float64(2)}).splitlines()[0])
print(Xla(device=7).call(handler("add"), [a, a], [c], {"alpha": np.float64(2)}).splitlines()[0])
"""
    dtype, device = said(path, driver, script)
    assert "TILEC_ERR_DTYPE" in dtype
    assert "TILEC_ERR_DEVICE" in device


def test_code_is_loaded_before_xla_may_capture(path: Path, driver: Path) -> None:
    script = """
from types import SimpleNamespace
from tilec.portable import jax_targets
import jax
jax_targets.local_gpus = lambda: [SimpleNamespace(local_hardware_id=each) for each in (1, 7)]
jax.eval_shape(made["add"], *[jax.ShapeDtypeStruct((8,), "float32")] * 2)
print(sum(line.startswith("load") for line in log()))
"""
    assert said(path, driver, script) == ["1"]


def lowered(function: Any, platform: str, *args: Any) -> str:
    names = [jax.export.DisabledSafetyCheck.custom_call(function.target)]
    exported = jax.export.export(jax.jit(function), platforms=(platform,), disabled_checks=names)(*args)
    return str(exported.mlir_module())


def test_what_is_lowered_for_a_gpu_has_the_workspace(functions: Any) -> None:
    x = np.zeros((8, 100), "int32")
    assert "tensor<8xi32>, tensor<512xui8>" in lowered(functions["sums"], "cuda", x)
    assert "ui8" not in lowered(functions["sums"], "cpu", x)
    a = np.zeros(8, "float32")
    assert functions["add"].target in lowered(functions["add"], "cuda", a, a)


def variant(size: str, **more: Any) -> dict[str, Any]:
    return {"device": "cuda", "guards": {}, "workspace": [{"name": "room", "bytes": size}], **more}


def test_a_workspace_suffices_for_what_the_dims_admit() -> None:
    few, many = {"N": {"text": "1..64", "min": 1, "max": 64}}, {"N": {"text": "%8", "div": 8}}
    room = jax_targets.Workspace(
        [variant("N * 1000", guards=few), variant("N * 10", guards=many), {"guards": {}, "workspace": []}]
    )
    sizes = {n: room.size({"N": n}) - 256 for n in (3, 64, 72, 73)}
    assert sizes == {3: 3072, 64: 64000, 72: 768, 73: 0}


def test_multiprocessors_count_in_a_workspace() -> None:
    room = jax_targets.Workspace([variant("4096 - 512 * (_num_sms % 3)", takes_num_sms=True)])
    assert room.size({}, [2, 4]) - 256 == 4096 - 512
    assert room.size({}) - 256 == 4096, "as many as any device may have"


def test_scalars_that_are_equal_are_told_apart() -> None:
    values = (1, True, 1.0, 0.0, -0.0)
    assert len({jax_targets.attribute("a", value) for value in values}) == len(values)
