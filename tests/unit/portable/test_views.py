"""How the loader sees arrays: dtype, shape, strides, address, of every kind of array."""

from __future__ import annotations

import array
import ctypes
from typing import Any

import numpy as np
import pytest

from tilec import dtypes
from tilec.portable.loader import DTYPES, LaunchError, _maker, _view
from tilec.portable.runner import numbers


def test_the_loader_and_the_table_of_dtypes_agree() -> None:
    assert {row.name: (row.dlpack, row.bits) for row in dtypes.DTYPES.values()} == DTYPES


def test_the_runner_and_the_table_of_float_formats_agree() -> None:
    formats = {name: form for name, form in dtypes.FLOAT_FORMATS.items() if dtypes.DTYPES[name].bits == 8}
    assert {
        name: (form.exponent, form.mantissa, form.has_infinity) for name, form in formats.items()
    } == numbers._SMALL


def test_float_formats_are_those_of_ml_dtypes() -> None:
    import ml_dtypes

    for name, form in dtypes.FLOAT_FORMATS.items():
        info = ml_dtypes.finfo(getattr(ml_dtypes, name, np.float16))
        assert (form.largest, form.mantissa, 1 - form.bias) == (float(info.max), info.nmant, info.minexp), (
            name
        )
        kind = info.dtype
        last = np.array([form.first_special - 1], f"uint{kind.itemsize * 8}").view(kind)
        assert float(last[0]) == form.largest


def arrays() -> list[tuple[str, Any]]:
    import ml_dtypes
    import torch

    found = []
    for row in dtypes.DTYPES.values():
        if row.bits < 8 or row.name == "tfloat32":
            continue
        module = ml_dtypes if row.numpy.startswith("ml_dtypes.") else np
        found.append((row.name, np.zeros((2, 3), getattr(module, row.numpy.removeprefix("ml_dtypes.")))))
        if row.torch is not None:
            found.append((row.name, torch.zeros((2, 3), dtype=getattr(torch, row.torch))))
    return found


def test_dtypes_of_numpy_and_torch() -> None:
    for name, made in arrays():
        assert _view(made, "x").dtype == DTYPES[name], (name, type(made))


def test_strides_count_elements() -> None:
    strided = np.zeros((4, 6, 8), np.int16)[::2, 1:, ::-1]
    view = _view(strided, "x")
    assert (view.shape, view.strides, view.address) == ((2, 5, 8), (96, 8, -1), strided.ctypes.data)
    assert _view(np.zeros((2, 3)), "x").strides is None


@pytest.mark.parametrize("dtype", [">f4", "S4", "datetime64[s]"])
def test_types_that_no_kernel_takes(dtype: Any) -> None:
    with pytest.raises(LaunchError, match="x has the element type"):
        _view(np.zeros(3, dtype), "x")


def test_buffers_of_the_standard_library() -> None:
    """array.array, ctypes arrays, memoryview and bytes, with their types, shapes, strides and addresses."""
    numbers = array.array("f", range(6))
    view = _view(numbers, "x")
    assert (view.shape, view.strides, view.dtype) == ((6,), (1,), DTYPES["float32"])
    assert (view.address, view.readonly) == (numbers.buffer_info()[0], False)
    grid = (ctypes.c_int16 * 3 * 2)()
    view = _view(grid, "x")
    assert (view.shape, view.strides, view.dtype) == ((2, 3), (3, 1), DTYPES["int16"])
    assert view.address == ctypes.addressof(grid)
    every_second = _view(memoryview(numbers)[1::2], "x")
    assert (every_second.shape, every_second.strides) == ((3,), (2,))
    assert every_second.address == numbers.buffer_info()[0] + 4
    assert _view(b"text", "x").readonly
    assert _view(bytearray(3), "x").dtype == DTYPES["uint8"]


@pytest.mark.parametrize("code", "?bBhHiIlLqQfd")
def test_buffers_have_the_types_of_numpys_arrays(code: str) -> None:
    assert _view(memoryview(bytearray(16)).cast(code), "x").dtype == _view(np.zeros(1, code), "x").dtype


def test_buffers_of_other_formats_are_refused() -> None:
    with pytest.raises(LaunchError, match="x has elements of format c"):
        _view(memoryview(b"text").cast("c"), "x")


class OnlyDLPack:
    def __init__(self, array: np.ndarray, versioned: bool) -> None:
        self.array, self.versioned = array, versioned

    def __dlpack__(self, **options: Any) -> object:
        if options and not self.versioned:
            raise TypeError("unexpected keyword")
        return self.array.__dlpack__(**options)


@pytest.mark.parametrize("versioned", [True, False])
def test_dlpack_capsules_old_and_new(versioned: bool) -> None:
    array = np.arange(12, dtype=np.float64).reshape(3, 4).T
    view = _view(OnlyDLPack(array, versioned), "x")
    assert (view.shape, view.strides, view.dtype) == ((4, 3), (1, 4), (2, 64))
    assert (view.address, view.readonly) == (array.ctypes.data, False)


def test_read_only_is_seen() -> None:
    array = np.zeros(3)
    array.flags.writeable = False
    assert _view(array, "x").readonly
    assert _view(OnlyDLPack(array, True), "x").readonly


@pytest.mark.parametrize("value", [3, [1.0], "text", None])
def test_no_array(value: object) -> None:
    with pytest.raises(TypeError, match="x must be an array"):
        _view(value, "x")


class OnGpu:
    """A CUDA tensor that only DLPack shows; it remembers the stream that it was asked to be ready on."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.streams: list[int] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 1)

    def __dlpack__(self, stream: int, **options: Any) -> object:
        self.streams.append(stream)
        return self.array.__dlpack__(**options)


@pytest.mark.parametrize(("stream", "asked"), [(0, 1), (0x55, 0x55)])
def test_cuda_tensors_are_made_ready_on_the_calls_stream(stream: int, asked: int) -> None:
    tensor = OnGpu(np.zeros(3, np.float32))
    assert _view(tensor, "x", stream).shape == (3,)
    assert tensor.streams == [asked]


def test_outputs_on_a_gpu_need_a_known_framework() -> None:
    with pytest.raises(TypeError, match="pass them"):
        _maker(OnGpu(np.zeros(3)), [3], "float32")
