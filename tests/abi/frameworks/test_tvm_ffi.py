"""The door of the tvm-ffi convention: arrays of several frameworks, left-out outputs, errors, load orders."""

from __future__ import annotations

import ctypes
import hashlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm_ffi
from breadth import parametrized
from cuda_samples import cuda_spec
from doors import floats
from samples import compiled, sample_spec, tensor

from tilec.codegen.image import Image, LaunchCode
from tilec.package.model import DimRecord, KernelRecord, VariantRecord
from tilec.package.write import BuildReport, write_package
from tilec.targets import native_host


@pytest.fixture(scope="module")
def module(sample: BuildReport) -> Any:
    return tvm_ffi.load_module(str(sample.library))


def array(tensor: object) -> np.ndarray:
    return np.from_dlpack(tensor)


# ---- frameworks ----


def test_numpy_in_place(module: Any) -> None:
    c = np.zeros(100, np.float32)
    assert module.sample_add(floats(100), floats(100), c) is None
    np.testing.assert_array_equal(c, 2 * floats(100))


def test_numpy_outputs_are_returned(module: Any) -> None:
    a, b = floats(5, 8), floats(8, 16)
    c = module.sample_matmul(a, b, 0.5)
    assert c.shape == (5, 16)
    assert c.dtype == "float32"
    np.testing.assert_allclose(array(c), 0.5 * a @ b)
    np.testing.assert_allclose(array(module.sample_matmul(a, b, None, 2)), 2 * a @ b)
    assert array(module.sample_add(floats(0), floats(0))).shape == (0,)


def test_torch_outputs_are_torch_tensors(module: Any) -> None:
    torch = pytest.importorskip("torch")
    a, b = torch.randn(5, 8), torch.randn(8, 16)
    c = module.sample_matmul(a, b, 1.0)
    assert isinstance(c, torch.Tensor)
    torch.testing.assert_close(c, a @ b)
    c.zero_()
    module.sample_matmul(a, b, c, 1.0)
    torch.testing.assert_close(c, a @ b)


def test_jax_outputs_become_arrays_of_jax(module: Any) -> None:
    jax = pytest.importorskip("jax")
    a = jax.numpy.arange(100, dtype="float32")
    c = jax.dlpack.from_dlpack(module.sample_add(a, a))
    np.testing.assert_array_equal(np.asarray(c), 2 * floats(100))


def test_both_kinds_of_tensor_arguments(module: Any) -> None:
    a, c = tvm_ffi.from_dlpack(floats(9)), np.zeros(9, np.float32)
    module.sample_add(a, a, tvm_ffi.from_dlpack(c))
    np.testing.assert_array_equal(c, 2 * floats(9))


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("dtype", ctypes.c_uint8 * 4),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class Value(ctypes.Structure):
    _fields_ = [("type_index", ctypes.c_int32), ("zero", ctypes.c_uint32), ("pointer", ctypes.c_void_p)]


def test_plain_dltensors_without_tvm_ffi_objects(sample: BuildReport) -> None:
    """What C++ programs pass: type index 7."""
    arrays = [floats(9), floats(9), np.zeros(9, np.float32)]
    shape = (ctypes.c_int64 * 1)(9)
    tensors = [DLTensor(each.ctypes.data, (1, 0), 1, (2, 32, 1, 0), shape, None, 0) for each in arrays]
    values = (Value * 3)(*(Value(7, 0, ctypes.addressof(each)) for each in tensors))
    result = Value(-1)
    call = ctypes.CDLL(str(sample.library)).__tvm_ffi_sample_add
    assert call(None, values, 3, ctypes.byref(result)) == 0
    assert result.type_index == 0
    np.testing.assert_array_equal(arrays[2], 2 * floats(9))


# ---- memory that the call needs ----


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_the_workspace_comes_from_the_environment(module: Any, framework: str) -> None:
    x = np.random.default_rng(0).random((6, 10), np.float32)[:, :7]
    given = x if framework == "numpy" else pytest.importorskip("torch").from_numpy(x)
    expected = x / x.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(array(module.sample_normalize(given)), expected, rtol=1e-6)


def test_dims_that_outputs_alone_show(module: Any) -> None:
    x, y = np.arange(4, dtype=np.int8), np.zeros(8, np.int32)
    scalars = (8, True, 3, 0.5)
    module.sample_mixed(x, y, *scalars)
    np.testing.assert_array_equal(array(module.sample_mixed(x, *scalars)), y)
    np.testing.assert_array_equal(array(module.sample_mixed(x, None, *scalars, 8)), y)


SPLIT = """
#include <stdint.h>
void split_0(const float* x, float* up, int32_t* down, int64_t n, void* scratch, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; i++) { up[i] = x[i] + 1; down[i] = (int32_t)x[i] - 1; }
}
"""


def test_several_outputs_are_an_array(tmp_path: Path) -> None:
    host = native_host()
    target = "x86-64-v2" if host.arch == "x86_64" else "aarch64"
    code = compiled(SPLIT, host)
    made = Image(target, code, hashlib.sha256(code).hexdigest(), (LaunchCode("split_0", ("N",), (1, 1, 1)),))
    params = (
        tensor("x", "float32", "N"),
        tensor("up", "float32", "N", access="out"),
        tensor("down", "int32", "N", access="out"),
    )
    kernel = KernelRecord("split", params, (DimRecord("N"),), (VariantRecord(target, (), made),))
    report = write_package(replace(sample_spec(host), name="several", kernels=(kernel,)), tmp_path)
    call = tvm_ffi.load_module(str(report.library)).several_split
    up, down = call(floats(5))
    np.testing.assert_array_equal(array(up), floats(5) + 1)
    np.testing.assert_array_equal(array(down), floats(5).astype("int32") - 1)
    given = np.zeros(5, np.int32)
    np.testing.assert_array_equal(array(call(floats(5), None, given)), floats(5) + 1)
    np.testing.assert_array_equal(given, array(down))


# ---- CUDA, with the stand-in driver ----

ON_CUDA = """
import ctypes, sys
import numpy as np, tvm_ffi
from test_tvm_ffi import DLTensor, Value

lib = ctypes.CDLL(sys.argv[1])
arrays = [np.ones(8, np.float32), np.ones(8, np.float32), np.zeros(8, np.float32)]
shape = (ctypes.c_int64 * 1)(8)
tensors = [DLTensor(each.ctypes.data, (2, 0), 1, (2, 32, 1, 0), shape, None, 0) for each in arrays]
values = (Value * 4)(*(Value(7, 0, ctypes.addressof(each)) for each in tensors), Value(1, 0, 2))
driver = ctypes.CDLL("libcuda.so.1")
driver.fake_cuda_log.restype = ctypes.c_char_p
stream = ctypes.c_void_p()
assert driver.cuStreamCreate(ctypes.byref(stream), 0) == 0
with tvm_ffi.use_raw_stream(tvm_ffi.device("cuda:0"), stream.value):
    assert lib.__tvm_ffi_gpu_sample_add(None, values, 4, ctypes.byref(Value())) == 0
assert (arrays[2] == 3).all()
assert f"stream {stream.value:#x}" in driver.fake_cuda_log().decode().splitlines()[-1]

module = tvm_ffi.load_module(sys.argv[1])
lib.gpu_sample_last_error.restype = ctypes.c_char_p
values[2], values[3] = Value(1, 0, 2), Value(0, 0, None)
assert lib.__tvm_ffi_gpu_sample_add(None, values, 3, ctypes.byref(Value())) == -1
assert b"tvm-ffi has no allocator here: call it with torch tensors" in lib.gpu_sample_last_error()
"""


def test_the_stream_is_that_of_the_environment(driver: Path, tmp_path: Path) -> None:
    report = write_package(cuda_spec(native_host()), tmp_path)
    here = Path(__file__).parent
    folders = (here, here.parent, here.parents[1] / "support")
    paths = os.pathsep.join([*map(str, folders), os.environ.get("PYTHONPATH", "")])
    env = {
        **os.environ,
        "LD_LIBRARY_PATH": str(driver),
        "FAKE_CUDA": "1 90 12090",
        "PYTHONPATH": paths,
    }
    command = [sys.executable, "-c", ON_CUDA, str(report.library)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=env)
    assert done.returncode == 0, done.stdout + done.stderr


# ---- errors ----


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ((), TypeError, "add: got 0 arguments, expected 3, 4 with every dim, or 2 with outputs left out"),
        ((floats(3), 1), TypeError, "b must be a tensor, got a int"),
        ((floats(3), "text"), TypeError, "b must be a tensor, got a value of unknown tag"),
        ((floats(3), None), TypeError, "b must be a tensor, got a none"),
        ((floats(3), floats(4)), ValueError, "b axis 0 has extent 4, expected N = 3 [TILEC_ERR_SHAPE]"),
        ((floats(3), floats(3).astype("float64")), TypeError, "b is float64, expected float32"),
        ((floats(6)[::2], floats(3)), ValueError, "a axis 0 has stride 2, expected 1"),
        ((floats(3), floats(3), None, -1), ValueError, "dim N = -1 is out of range"),
    ],
)
def test_errors_are_exceptions(
    module: Any, arguments: tuple[object, ...], error: type[Exception], text: str
) -> None:
    with pytest.raises(error) as caught:
        module.sample_add(*arguments)
    assert text in str(caught.value)


#: A fresh process that loads in the given order, then fails and succeeds.
ORDERS = {
    "library first": "import ctypes, sys; lib = ctypes.CDLL(sys.argv[1]); import tvm_ffi",
    "tvm-ffi first": "import sys, tvm_ffi",
    "library global": "import ctypes as c, sys; lib = c.CDLL(sys.argv[1], c.RTLD_GLOBAL); import tvm_ffi",
}
CHECK = """
import numpy as np
module = tvm_ffi.load_module(sys.argv[1])
a = np.ones(4, np.float32)
for wrong in (np.ones(5, np.float32), 7):
    try:
        module.sample_add(a, wrong)
    except (ValueError, TypeError) as error:
        assert "sample" not in str(error) and "b " in str(error), error
    else:
        raise SystemExit("no error")
assert (np.from_dlpack(module.sample_add(a, a)) == 2).all()
"""


@parametrized("order", ORDERS, fast=["library first"])
def test_either_library_may_be_loaded_first(sample: BuildReport, order: str) -> None:
    command = [sys.executable, "-c", ORDERS[order] + CHECK, str(sample.library)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_without_tvm_ffi_a_failing_call_says_so(sample: BuildReport) -> None:
    script = """
import ctypes, sys
lib = ctypes.CDLL(sys.argv[1])
result = (ctypes.c_int64 * 2)()
assert lib.__tvm_ffi_sample_add(None, None, 0, result) == -1
lib.sample_last_error.restype = ctypes.c_char_p
assert b"got 0 arguments" in lib.sample_last_error()
assert "libtvm_ffi" not in open("/proc/self/maps").read()
"""
    subprocess.run([sys.executable, "-c", script, str(sample.library)], check=True, timeout=60)


def test_outputs_do_not_leak(module: Any) -> None:
    import resource

    a = np.ones(1 << 18, np.float32)
    for _ in range(20):
        module.sample_add(a, a)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(200):
        module.sample_add(a, a)
        with pytest.raises(ValueError, match="extent"):
            module.sample_add(a, a[:-1])
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # KiB; 200 MiB if kept
