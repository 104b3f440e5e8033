"""The generic door through ctypes, as a foreign-language binding would use it."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilec.portable.loader import Library, _Arg, _DataType, _Device, _Exec, _Tensor

CODES = {"f": 2, "i": 0, "u": 1, "b": 6}


class Door:
    """``launch`` returns (status name, last error); tensors are NumPy arrays or `_Tensor` records."""

    def __init__(self, library: Library, kernel: str) -> None:
        self.table = library._table
        self.kernel = self.table.find(kernel.encode())

    def launch(
        self, args: Sequence[Any], run: _Exec | None = None, count: int | None = None
    ) -> tuple[str, str]:
        array = (_Arg * max(len(args), 1))(*(argument(arg) for arg in args))
        pointer = None if run is None else ctypes.byref(run)
        status = self.table.launch(self.kernel, pointer, array, len(args))
        return self.table.status_name(status).decode(), self.table.last_error().decode()


def floats(*shape: int) -> np.ndarray:
    """0, 1, 2, ... of float32."""
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def argument(value: Any) -> _Arg:
    """A tagged argument; a float is a float, an int an int, everything else a tensor."""
    arg = _Arg()
    if isinstance(value, _Arg):
        return value
    if isinstance(value, bool | int):
        arg.tag, arg.v.i = 2 if isinstance(value, bool) else 1, value
    elif isinstance(value, float):
        arg.tag, arg.v.f = 3, value
    else:
        made = tensor(value) if isinstance(value, np.ndarray) else value
        arg.tag, arg.v.tensor = 7, ctypes.pointer(made)
    return arg


def tensor(array: np.ndarray, **changes: Any) -> _Tensor:
    """The DLTensor of a NumPy array, with fields replaced by ``changes``."""
    kind = ctypes.c_int64 * max(array.ndim, 1)
    made = _Tensor(
        array.ctypes.data,
        _Device(1, 0),
        array.ndim,
        _DataType(CODES[array.dtype.kind], 8 * array.itemsize, 1),
        kind(*array.shape),
        kind(*(stride // array.itemsize for stride in array.strides)),
        0,
    )
    made.keep = array
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def exec_record(**fields: Any) -> _Exec:
    """A tilec_exec for the CPU."""
    return _Exec(struct_size=ctypes.sizeof(_Exec), device=_Device(1, 0), **fields)
