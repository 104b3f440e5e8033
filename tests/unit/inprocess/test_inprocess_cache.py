"""The cache of kernels: what changes a key, what a machine without compilers does, damage, size."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import time
import types
from pathlib import Path
from typing import Any

import inprocess_kernels as kernels
import pytest

import tilec
import tilec.language as T
from tilec.inprocess.compilation import keys, store
from tilec.inprocess.compilation.keys import kernel_key

torch = pytest.importorskip("torch")

HERE = Path(__file__).parent

#: Runs kernels where importing TVM, ziglang, a CUDA compiler or pydantic fails.
WITHOUT_COMPILERS = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("tvm", "ziglang", "nvidia", "pydantic"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refuse())
import torch
import inprocess_kernels as kernels
from tilec.errors import EnvironmentError_
x = torch.arange(100, dtype=torch.float32)
assert (kernels.axpy(100)(x, 2.0) == 2 * x).all()
a, b = torch.randn(40, 24), torch.randn(56, 24)
torch.testing.assert_close(kernels.linear(a, b), a @ b.T)
up, down = kernels.halves(x)
assert (up == 2 * x).all()
import tilec
assert kernels.axpy.par_compile([(100,)])[0].target.is_cpu
with tilec.autotuner.set_autotune_inputs(x, 2.0):
    assert tilec.autotune(configs=[{"block": 64}], warmup=1, rep=2)(kernels.axpy)(100).config == {"block": 64}
try:
    kernels.axpy(101)
except EnvironmentError_ as error:
    assert "axpy" in str(error) and "is not in the cache" in str(error), error
else:
    raise SystemExit("it should not have been there")
"""


def run(script: str, folder: Path = HERE, **environment: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": paths, **environment}
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, env=env
    )


WITHOUT_TORCH = """
import sys
import numpy as np
import inprocess_kernels as kernels
x = np.arange(100, dtype=np.float32)
np.testing.assert_array_equal(kernels.axpy(100)(x, 2.0), 2 * x)
print({"torch", "tvm_ffi"} & sys.modules.keys())
"""


def test_a_kernel_from_the_cache_imports_no_torch() -> None:
    kernels.axpy(100)
    done = run(WITHOUT_TORCH)
    assert (done.stdout, done.stderr) == ("set()\n", "")


def test_a_filled_cache_serves_without_compilers(tmp_path: Path) -> None:
    kernels.axpy(100)
    kernels.linear.compile(M=40, N=56, K=24)
    kernels.halves.compile()
    moved = tmp_path / "inprocess_kernels.py"  # the path of the sources does not count, their text does
    moved.write_text((HERE / "inprocess_kernels.py").read_text())
    done = run(WITHOUT_COMPILERS, tmp_path)
    assert done.returncode == 0, done.stderr


MODULE = """
import tilec, tilec.language as T
import helpers
WIDTH = 4
def inner(x): return x + {inner}
@T.macro
def twice(A, i): A[i] = A[i] * {factor}
@tilec.jit
def kernel(A, n: int = 8):
    A: T.Tensor[[8], T.float32]
    with T.Kernel(1, threads=32) as bx:
        for i in T.serial(8):
            A[i] = inner(A[i]) + WIDTH + helpers.more()
            twice(A, i)
"""


def _keys(tmp_path: Path, helper: str = "1", **values: Any) -> str | None:
    """The key of the kernel in modules with these texts."""
    (tmp_path / "deeper.py").write_text(f"def more(): return {helper}\n")
    (tmp_path / "helpers.py").write_text("from deeper import more\n")
    (tmp_path / "keyed.py").write_text(MODULE.format(**{"inner": 1, "factor": 2, **values}))
    script = """
import keyed
from tilec.inprocess.compilation.keys import kernel_key
function = keyed.kernel.captured
print(kernel_key(function, {"n": 8}, {}))
keyed.WIDTH = 5
print(kernel_key(function, {"n": 8}, {}))
print(kernel_key(function, {"n": 9}, {}), kernel_key(function, {"n": 8}, {"target": "x"}))
"""
    done = run(script, tmp_path, PYTHONDONTWRITEBYTECODE="1")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_a_key_depends_on(tmp_path: Path) -> None:
    first = _keys(tmp_path)
    assert _keys(tmp_path) == first
    assert len(set(first.split())) == 4  # values of globals, arguments and options count
    assert None not in first.split()
    for changed in (_keys(tmp_path, inner=3), _keys(tmp_path, factor=3), _keys(tmp_path, helper="7")):
        assert not set(changed.split()) & set(first.split())


def test_annotations_count() -> None:
    """Names of annotations are no free variables of a function."""

    def make(n: int, dtype: str) -> Any:
        @T.prim_func
        def main(A: T.Tensor((n,), dtype), B: T.Tensor((n,), dtype)):
            with T.Kernel(1, threads=32) as _:
                B[0] = A[0]

        return main

    def make_eager(dtype: str) -> Any:
        @tilec.jit
        def kernel(A):
            N = T.const("N")
            A: T.Tensor[[N], dtype]
            with T.Kernel(1, threads=32) as _:
                A[0] = 1

        return kernel

    made = [make(8, "float32"), make(9, "float32"), make(8, "int32")]
    made += [make_eager("float32"), make_eager("int32")]
    assert len({kernel_key(each.captured, {}, {}) for each in made}) == 5
    assert kernel_key(make(8, "float32").captured, {}, {}) == kernel_key(made[0].captured, {}, {})
    x = torch.arange(9, dtype=torch.float32)
    for each, size in zip(made[:2], (8, 9), strict=True):
        assert tilec.compile(each, out_idx=[1])(x[:size]).shape == (size,)


def test_dimensions_of_a_module_have_a_text() -> None:
    """They are symbols that nothing has looked at yet."""
    first, second = T.dynamic("first"), T.dynamic("second", "int64")

    def key(extent: Any) -> str | None:
        @T.prim_func
        def main(A: T.Tensor((extent,), "float32"), B: T.Tensor((extent,), "float32")):
            with T.Kernel(1, threads=32) as _:
                B[0] = A[0]

        return kernel_key(main.captured, {}, {})

    keys = [key(first), key(second), key(first * 2), key(first + 2), key(T.dynamic("first", "int64"))]
    assert None not in keys
    assert len(set(keys)) == 5
    assert key(first * 2) == keys[2]


def test_functions_that_others_made_are_told_apart() -> None:
    """`T.exp` and `T.sin` are closures of one function of tilec."""

    def make(function: Any) -> Any:
        @T.prim_func
        def main(A: T.Tensor((8,), "float32"), B: T.Tensor((8,), "float32")):
            with T.Kernel(1, threads=32) as _:
                for i in T.Parallel(8):
                    B[i] = function(A[i])

        return main

    functions = [T.exp, T.exp2, T.sin, T.tanh, T.sigmoid, T.abs, T.floor]
    keys = [kernel_key(make(function).captured, {}, {}) for function in functions]
    assert None not in keys
    assert len(set(keys)) == len(functions)
    assert kernel_key(make(T.exp).captured, {}, {}) == keys[0]
    given = [kernel_key(kernels.axpy.captured, {"n": 3, "act": function}, {}) for function in functions]
    assert len(set(given)) == len(functions)
    x = torch.randn(8)
    for function, wanted in ((T.exp, torch.exp), (T.tanh, torch.tanh)):
        torch.testing.assert_close(tilec.compile(make(function), out_idx=[1])(x), wanted(x))


def test_values_without_a_text_have_no_key() -> None:
    function = kernels.axpy.captured
    assert kernel_key(function, {"n": 3}, {}) is not None
    assert kernel_key(function, {"n": object()}, {}) is None


@pytest.mark.parametrize("file", ["keyed.py", "helpers.py", "deeper.py"])
def test_files_that_are_written_while_the_process_runs_give_no_key(tmp_path: Path, file: str) -> None:
    """Their text is not what has been loaded of them."""
    script = f"""
import pathlib
import keyed
from tilec.inprocess.compilation.keys import kernel_key
print(kernel_key(keyed.kernel.captured, {{"n": 8}}, {{}}) is None)
path = pathlib.Path({str(tmp_path / file)!r})
path.write_text(path.read_text() + "CHANGED = 1\\n")
print(kernel_key(keyed.kernel.captured, {{"n": 8}}, {{}}) is None)
"""
    _keys(tmp_path)
    done = run(script, tmp_path, PYTHONDONTWRITEBYTECODE="1")
    assert done.stdout.split() == ["False", "True"], done.stderr


def test_damage_is_a_miss() -> None:
    kernel = kernels.axpy.compile(31)
    path = kernel.lib_path
    key = path.stem
    assert store.find(key) is not None
    whole = path.read_bytes()
    copy = path.with_suffix(".new")  # the library in use stays as it is
    copy.write_bytes(whole[:-100])
    copy.replace(path)
    assert store.find(key) is None
    x = torch.randn(31)
    torch.testing.assert_close(kernels.axpy.compile(31)(x, 3.0), 3 * x)
    assert path.read_bytes() == whole


def test_the_cache_may_be_off(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TILEC_CACHE", "0")
    monkeypatch.setenv("TILELANG_TMP_DIR", str(tmp_path / "own"))
    assert kernels.axpy.compile(32).lib_path.is_relative_to(tmp_path / "own")
    monkeypatch.delenv("TILELANG_TMP_DIR")
    kernel = kernels.axpy.compile(32)
    assert str(store._library("")).rpartition("/v1/")[0] not in str(kernel.lib_path)
    monkeypatch.delenv("TILEC_CACHE")
    store.disable_cache()
    try:
        assert not store.is_cache_enabled()
    finally:
        store.enable_cache()
    assert store.is_cache_enabled()


def test_the_least_recently_used_go_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path))
    paths = [store._library(f"{number:02d}aa") for number in range(4)]
    for age, path in enumerate(paths):
        path.parent.mkdir(parents=True)
        path.write_bytes(bytes(100))
        os.utime(path, (0, time.time() - 1000 * (4 - age)))
    store._cards().trim(400)
    assert all(path.exists() for path in paths)
    os.utime(paths[0])
    store._cards().trim(300)
    assert [path.exists() for path in paths] == [True, False, False, True]


@pytest.mark.slow
def test_a_killed_process_leaves_the_cache_usable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = """
import os, signal
import inprocess_kernels as kernels
import tilec.inprocess.compilation.store as store
store.keep = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # the library is there, its card is not
kernels.axpy(33)
"""
    done = run(script, TILEC_CACHE_DIR=str(tmp_path))
    assert done.returncode == -9, done.stderr
    assert len(list(tmp_path.rglob("*.so"))) == 1
    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path))
    x = torch.randn(33)
    torch.testing.assert_close(kernels.axpy.compile(33)(x, 2.0), 2 * x)


def test_a_process_may_open_any_number_of_kernels(tmp_path: Path) -> None:
    original = kernels.axpy.compile(100).lib_path
    for number in range(120):
        (tmp_path / f"{number}.so").write_bytes(original.read_bytes())
    script = """
import sys
from pathlib import Path
from tilec.portable.loader import load
assert len([load(path) for path in Path(sys.argv[1]).glob("*.so")]) == 120
"""
    subprocess.run([sys.executable, "-c", script, tmp_path], check=True)


@pytest.mark.slow
def test_processes_may_build_one_kernel_at_once(tmp_path: Path) -> None:
    script = """
import torch, inprocess_kernels as kernels
x = torch.arange(34, dtype=torch.float32)
assert (kernels.axpy(34)(x, 2.0) == 2 * x).all()
"""
    paths = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": paths, "TILEC_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", script]
    running = [subprocess.Popen(command, env=env) for _ in range(3)]
    assert [process.wait(120) for process in running] == [0, 0, 0]
    assert len(list(tmp_path.rglob("*.so"))) == 1
    assert not list(tmp_path.rglob(".tilec-*"))


def test_what_counts_by_its_text() -> None:
    """Python and the frameworks count by name; kernels in installed packages change with their versions."""
    names = {"math": True, "tilec.language": True, "numpy": True, "pydantic": False}
    for name, by_name in names.items():
        assert keys._is_installed(importlib.import_module(name)) is by_name
    elsewhere = types.ModuleType("elsewhere")
    elsewhere.__file__ = os.path.join(sys.base_prefix, "src", "app", "elsewhere.py")
    assert not keys._is_installed(elsewhere)
