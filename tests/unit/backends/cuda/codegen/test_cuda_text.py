"""CUDA C++ is TVM's text and nothing else of TVM, whatever the machine has."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import tvm_ffi
from device_kernels import add
from gpu_machine import gpu_runtime, stand_in

from tilec.backends.cuda.codegen import images as cuda
from tilec.errors import CompileError
from tilec.targets import parse_target

SM90A = parse_target("sm_90a")
HOOKS = ("tvm_callback_cuda_postproc", "tirx.intrinsics.cuda.header_generator", "tvm_callback_cuda_compile")
CHILD = """
import json, os, tvm
from device_kernels import add
from tilec.backends.cuda.codegen import images as cuda
from tilec.targets import parse_target
texts = []
for compiler in ("nvrtc", "nvcc"):
    os.environ["TVM_CUDA_COMPILE_MODE"] = compiler
    texts.append(cuda.source(add("float16"), parse_target("sm_90a"), "p"))
print(json.dumps({"device": tvm.cuda(0).exist, "texts": texts}))
"""


@pytest.mark.slow
def test_a_driver_and_foreign_compilers_change_nothing(tmp_path: Path) -> None:
    runtime = gpu_runtime()
    if runtime is None:
        pytest.skip("this TVM has no library for GPUs")
    environment = stand_in(tmp_path, runtime)
    here = Path(__file__).parents[4] / "support" / "sample_kernels"
    done = subprocess.run(
        [sys.executable, "-c", CHILD], env=environment, cwd=here, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["device"], "TVM does not believe in the stand-in's device"
    assert said["texts"] == [cuda.source(add("float16"), SM90A, "p")] * 2
    assert not (tmp_path / "asked").exists()


def test_hooks_of_others_stay() -> None:
    before = {name: _hook(name) for name in HOOKS}
    tvm_ffi.register_global_func(HOOKS[0], lambda text, _target: f"{text}// edited", override=True)
    try:
        assert "edited" not in cuda.source(add(), SM90A, "p")
        assert tvm_ffi.get_global_func(HOOKS[0])("text ", None) == "text // edited"
    finally:
        tvm_ffi.remove_global_func(HOOKS[0])
    cuda.source(add(), SM90A, "p")
    assert {name: _hook(name) for name in HOOKS} == before


def test_what_the_generator_refuses_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilec.backends.cuda.codegen.images.header", _refuse)
    with pytest.raises(CompileError) as caught:
        cuda.source(add(), SM90A, "p")
    assert "no such header" in caught.value.why
    assert _hook(HOOKS[0]) is None


def _refuse(_tags: object) -> str:
    raise ValueError("no such header")


def _hook(name: str) -> object:
    function = tvm_ffi.get_global_func(name, allow_missing=True)
    return None if function is None else function.__chandle__()
