"""Validation of the generic door: every argument that is wrong is named, and nothing runs."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import numpy as np
import pytest
from doors import Door, argument, exec_record, floats, tensor

from tilec.package.write import BuildReport
from tilec.portable.loader import Library, _DataType, _Device, load


@pytest.fixture(scope="module")
def library(sample: BuildReport) -> Library:
    return load(sample.library)


def test_launch_adds(library: Library) -> None:
    c = np.zeros(100, np.float32)
    assert Door(library, "add").launch([floats(100), floats(100), c])[0] == "TILEC_OK"
    np.testing.assert_array_equal(c, 2 * floats(100))


@pytest.mark.parametrize(
    ("args", "status", "message"),
    [
        ([floats(4), floats(4)], "ARGUMENT", "got 2 arguments, expected 3"),
        ([floats(4), 1, floats(4)], "ARGUMENT", "b must be a tensor, got a int"),
        ([floats(4), floats(4).astype("f8"), floats(4)], "DTYPE", "b is float64, expected float32"),
        ([floats(4), floats(4).astype("?"), floats(4)], "DTYPE", "b is bool, expected float32"),
        ([floats(4), tensor(floats(4), dtype=_DataType(4, 16, 1)), floats(4)], "DTYPE", "b is bfloat16, "),
        (
            [floats(4), tensor(floats(4), dtype=_DataType(10, 8, 1)), floats(4)],
            "DTYPE",
            "b is float8_e4m3fn, ",
        ),
        (
            [floats(4), tensor(floats(4), dtype=_DataType(77, 8, 1)), floats(4)],
            "DTYPE",
            "type code 77 of 8 bits",
        ),
        ([floats(4), tensor(floats(4), dtype=_DataType(2, 32, 2)), floats(4)], "DTYPE", "b is float32x2, "),
        ([floats(4), floats(2, 2), floats(4)], "SHAPE", "b has 2 axes, expected 1"),
        ([floats(4), floats(5), floats(4)], "SHAPE", "b axis 0 has extent 5, expected N = 4"),
        ([floats(4), floats(8)[::2], floats(4)], "LAYOUT", "b axis 0 has stride 2, expected 1"),
        ([floats(4), tensor(floats(4), byte_offset=2), floats(4)], "LAYOUT", "not aligned to 4 bytes"),
        ([floats(4), tensor(floats(4), data=None), floats(4)], "ARGUMENT", "b is NULL but has elements"),
        (
            [floats(4), tensor(floats(4), device=_Device(2, 1)), floats(4)],
            "DEVICE",
            "b is on cuda:1, the call runs on cpu",
        ),
        (
            [floats(4), tensor(floats(4), device=_Device(99, 3)), floats(4)],
            "DEVICE",
            "b is on device 3 of DLPack's type 99, ",
        ),
        ([floats(4), tensor(floats(4), shape=(ctypes.c_int64 * 1)(-4)), floats(4)], "SHAPE", "extent -4"),
    ],
)
def test_bad_tensors(library: Library, args: list[Any], status: str, message: str) -> None:
    found, text = Door(library, "add").launch(args)
    assert (found, message in text) == (f"TILEC_ERR_{status}", True), text
    assert text.startswith("add: ")


def test_no_tensor_behind_the_pointer(library: Library) -> None:
    null = argument(floats(4))
    null.v.i = 0
    assert Door(library, "add").launch([null, floats(4), floats(4)])[0] == "TILEC_ERR_ARGUMENT"


def test_strides_of_nothing_and_of_one_are_ignored(library: Library) -> None:
    odd = (ctypes.c_int64 * 1)(77)
    one = [tensor(floats(1), strides=odd) for _ in range(3)]
    none = [tensor(floats(0), strides=odd, data=None) for _ in range(3)]
    assert Door(library, "add").launch(one)[0] == "TILEC_OK"
    assert Door(library, "add").launch(none)[0] == "TILEC_OK"


def test_missing_strides_mean_contiguous(library: Library) -> None:
    c = np.zeros(4, np.float32)
    args = [tensor(array, strides=None) for array in (floats(4), floats(4), c)]
    assert Door(library, "add").launch(args)[0] == "TILEC_OK"
    np.testing.assert_array_equal(c, [0, 2, 4, 6])


def test_byte_offset_moves_the_base(library: Library) -> None:
    c = np.zeros(3, np.float32)
    a = tensor(floats(4), byte_offset=4, shape=(ctypes.c_int64 * 1)(3))
    assert Door(library, "add").launch([a, np.zeros(3, np.float32), c])[0] == "TILEC_OK"
    np.testing.assert_array_equal(c, [1, 2, 3])


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({}, "TILEC_OK"),
        ({"flag": 1}, "TILEC_OK"),
        ({"scale": 2}, "TILEC_OK"),
        ({"n": 5}, "TILEC_ERR_SHAPE"),
        ({"n": 2**31}, "TILEC_ERR_DTYPE"),
        ({"n": 4.0}, "TILEC_ERR_ARGUMENT"),
        ({"flag": 2}, "TILEC_ERR_DTYPE"),
        ({"flag": 1.0}, "TILEC_ERR_ARGUMENT"),
        ({"scale": floats(1)}, "TILEC_ERR_ARGUMENT"),
        ({"scale": 1e300}, "TILEC_OK"),
    ],
)
def test_scalars(library: Library, changes: dict[str, Any], status: str) -> None:
    args = {
        "x": np.array([1, 2], np.int8),
        "y": np.zeros(4, np.int32),
        "n": 4,
        "flag": True,
        "shift": 1,
        "scale": 0.5,
    }
    assert Door(library, "mixed").launch(list({**args, **changes}.values()))[0] == status


@pytest.mark.parametrize(
    ("alpha", "status"),
    [
        (65519.9, "TILEC_OK"),
        (65520.0, "TILEC_ERR_DTYPE"),
        (-100000, "TILEC_ERR_DTYPE"),
        (1e300, "TILEC_ERR_DTYPE"),
        (math.inf, "TILEC_OK"),
        (math.nan, "TILEC_OK"),
    ],
)
def test_a_finite_number_never_becomes_infinite(library: Library, alpha: float, status: str) -> None:
    a, b, c = (np.zeros(shape, np.float32) for shape in ((4, 2), (2, 16), (4, 16)))
    found, text = Door(library, "matmul").launch([a, b, c, alpha])
    assert found == status
    assert found == "TILEC_OK" or f"alpha = {alpha:g} does not fit its 16 bits" in text


def test_dims_may_be_appended(library: Library) -> None:
    c = np.zeros(4, np.float32)
    assert Door(library, "add").launch([floats(4), floats(4), c, 4])[0] == "TILEC_OK"
    assert Door(library, "add").launch([floats(4), floats(4), c, 3])[0] == "TILEC_ERR_SHAPE"
    assert Door(library, "add").launch([floats(4), floats(4), c, 3.0])[0] == "TILEC_ERR_ARGUMENT"


def test_strided_rows(library: Library) -> None:
    x, y = floats(3, 8)[:, :5], np.zeros((3, 5), np.float32)
    memory = np.zeros(512, np.uint8)
    start = -memory.ctypes.data % 64
    run = exec_record(workspace=memory.ctypes.data + start, workspace_size=128)
    assert Door(library, "normalize").launch([x, y], run)[0] == "TILEC_OK"
    np.testing.assert_allclose(y, x / x.sum(1, keepdims=True), rtol=1e-6)
    status, text = Door(library, "normalize").launch([floats(5, 3).T, y], run)
    assert status == "TILEC_ERR_LAYOUT"
    assert text == "normalize: x axis 1 has stride 3, expected 1"


def test_written_tensors_have_memory_of_their_own(library: Library) -> None:
    memory = floats(64)
    for shift in (0, 16, 15):
        status, text = Door(library, "add").launch([memory[:16], floats(16), memory[shift : shift + 16]])
        refused = shift < 16
        assert (status == "TILEC_ERR_LAYOUT") == refused, text
        assert not refused or "c is written and shares memory with a" in text
    assert Door(library, "add").launch([memory[:16], memory[8:24], memory[32:48]])[0] == "TILEC_OK"
    assert Door(library, "add").launch([memory[:0], memory[:0], memory[:0]])[0] == "TILEC_OK"
    nothing = [np.zeros((0, 8), np.float32), memory.reshape(8, 8)[:, :0], memory[32:32].reshape(0, 0), 1.0]
    assert Door(library, "matmul").launch(nothing)[0] == "TILEC_OK"


def test_a_tensor_may_lie_between_the_rows_of_another(library: Library) -> None:
    both, workspace = np.ones((2, 16), np.float32), np.zeros(512, np.uint8)
    start = -workspace.ctypes.data % 64
    run = exec_record(workspace=workspace.ctypes.data + start, workspace_size=128)
    between = both.reshape(-1)[4:12].reshape(2, 4)
    assert Door(library, "normalize").launch([both[:, :4], between], run)[0] == "TILEC_OK"
    np.testing.assert_array_equal(between, np.full((2, 4), 0.25, np.float32))


def test_foreign_handles_are_refused(library: Library) -> None:
    door = Door(library, "add")
    door.kernel = Door(library, "matmul").kernel + 8
    assert "another library" in door.launch([])[1]
    door.kernel = None
    assert "NULL" in door.launch([])[1]


def test_a_variant_of_another_kernel_is_refused(library: Library) -> None:
    handle = library.kernels["matmul"]._variant_handle(library.kernels["matmul"].variants[0].id)
    status, text = Door(library, "add").launch([floats(4) for _ in range(3)], exec_record(variant=handle))
    assert (status, "another kernel" in text) == ("TILEC_ERR_ARGUMENT", True)


def test_a_stale_variant_is_refused(library: Library) -> None:
    kernel = library.kernels["matmul"]
    number = kernel.select(M=3, N=16, K=8).id
    run = exec_record(variant=kernel._variant_handle(number))
    status, text = Door(library, "matmul").launch([floats(4, 8), floats(8, 16), floats(4, 16), 1.0], run)
    assert (status, "M = 4 is not 3" in text) == ("TILEC_ERR_NO_VARIANT", True)


def test_last_error_is_of_this_thread(library: Library) -> None:
    import threading

    assert Door(library, "add").launch([])[1] != ""
    seen: list[bytes] = []
    thread = threading.Thread(target=lambda: seen.append(library._table.last_error()))
    thread.start()
    thread.join()
    assert seen == [b""]
