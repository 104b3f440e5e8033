"""How the loader sees arrays: dtype, shape, strides, address, of every kind of array."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilec import dtypes
from tilec.loader import _DTYPES, LaunchError, _view


def test_the_loader_and_the_table_of_dtypes_agree() -> None:
    assert {row.name: (row.dlpack, row.bits) for row in dtypes.DTYPES.values()} == _DTYPES


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
    for name, array in arrays():
        assert _view(array, "x").dtype == _DTYPES[name], (name, type(array))


def test_strides_count_elements() -> None:
    array = np.zeros((4, 6, 8), np.int16)[::2, 1:, ::-1]
    view = _view(array, "x")
    assert (view.shape, view.strides, view.address) == ((2, 5, 8), (96, 8, -1), array.ctypes.data)
    assert _view(np.zeros((2, 3)), "x").strides is None


@pytest.mark.parametrize("dtype", [np.complex64, ">f4", "S4", "datetime64[s]"])
def test_types_that_no_kernel_takes(dtype: Any) -> None:
    with pytest.raises(LaunchError, match="x has the element type"):
        _view(np.zeros(3, dtype), "x")


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
