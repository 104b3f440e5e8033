"""Calls of a handler of XLA's FFI by its C structs, as XLA makes them for a device with a stream."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

#: Of XLA_FFI_DataType, and kinds of arguments, results and attributes.
DTYPES = {"float16": 10, "float32": 11, "float64": 12, "int32": 4, "int64": 5, "uint8": 6, "bool": 1}
BUFFER, SCALAR, EXECUTE = 1, 3, 3
#: Places among the functions of XLA_FFI_Api.
CREATE_ERROR, GET_STREAM, GET_ORDINAL, FUNCTIONS = 0, 4, 17, 18

_P, _I32, _I64 = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64
_SIZED = [("struct_size", ctypes.c_size_t), ("extension", _P)]


def _structure(name: str, *fields: tuple[str, Any], sized: bool = True) -> Any:
    return type(name, (ctypes.Structure,), {"_fields_": [*(_SIZED if sized else []), *fields]})


Buffer = _structure("Buffer", ("dtype", _I32), ("data", _P), ("rank", _I64), ("dims", _P))
Scalar = _structure("Scalar", ("dtype", _I32), ("value", _P), sized=False)
Span = _structure("Span", ("text", ctypes.c_char_p), ("length", ctypes.c_size_t), sized=False)
Listed = _structure("Listed", ("size", _I64), ("types", _P), ("items", _P))
Attributes = _structure("Attributes", ("size", _I64), ("types", _P), ("names", _P), ("items", _P))
Version = _structure("Version", ("major", ctypes.c_int), ("minor", ctypes.c_int))
Api = _structure("Api", ("version", Version), ("internal", _P), ("functions", _P * FUNCTIONS))
Frame = _structure(
    "Frame",
    ("api", _P),
    ("context", _P),
    ("stage", _I32),
    ("args", Listed),
    ("rets", Listed),
    ("attrs", Attributes),
    ("future", _P),
)
Error = _structure("Error", ("message", ctypes.c_char_p), ("code", _I32))
Got = _structure("Got", ("context", _P), ("pointer", _P))
Ordinal = _structure("Ordinal", ("context", _P), ("number", _I32))
Asked = ctypes.CFUNCTYPE(_P, _P)


class Xla:
    """Calls handlers for a ``device`` on a ``stream``, over memory of NumPy."""

    def __init__(self, device: int = 0, stream: int = 0x10) -> None:
        self.device, self.stream, self._kept, self._said = device, stream, [], ""
        self._asked = [Asked(lambda _: 0)] * FUNCTIONS
        for place, answer in (
            (CREATE_ERROR, self._error),
            (GET_STREAM, self._stream),
            (GET_ORDINAL, self._ordinal),
        ):
            self._asked[place] = Asked(answer)
        pointers = (_P * FUNCTIONS)(*(ctypes.cast(each, _P).value for each in self._asked))
        self._api = Api(ctypes.sizeof(Api), None, Version(ctypes.sizeof(Version), None, 0, 3), None, pointers)

    def call(
        self, capsule: Any, args: Sequence[Any], rets: Sequence[Any], attrs: Mapping[str, Any] | None = None
    ) -> str:
        """The text of the error; empty where there is none."""
        get = ctypes.pythonapi.PyCapsule_GetPointer
        get.restype, get.argtypes = _P, [ctypes.py_object, ctypes.c_char_p]
        name = ctypes.pythonapi.PyCapsule_GetName
        name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
        handler = Asked(get(capsule, name(capsule)))
        frame = Frame(ctypes.sizeof(Frame), None, ctypes.addressof(self._api), None, EXECUTE)
        frame.args, frame.rets = (self._listed(list(map(self._buffer, each))) for each in (args, rets))
        frame.attrs = self._attributes(dict(sorted((attrs or {}).items())))
        self._said = ""
        handler(ctypes.addressof(frame))
        return self._said

    def _keep(self, made: Any) -> int:
        self._kept.append(made)
        return ctypes.addressof(made)

    def _pointers(self, made: Sequence[Any]) -> int:
        return self._keep((_P * len(made))(*map(self._keep, made)))

    def _kinds(self, kind: int, count: int) -> int:
        return self._keep((_I32 * count)(*[kind] * count))

    def _listed(self, made: Sequence[Any]) -> Any:
        size = len(made)
        return Listed(ctypes.sizeof(Listed), None, size, self._kinds(BUFFER, size), self._pointers(made))

    def _buffer(self, array: Any) -> Any:
        dims = self._keep((_I64 * array.ndim)(*array.shape))
        kind = DTYPES[array.dtype.name]
        return Buffer(ctypes.sizeof(Buffer), None, kind, array.ctypes.data, array.ndim, dims)

    def _attributes(self, attrs: Mapping[str, Any]) -> Any:
        values = {name: np.asarray(value) for name, value in attrs.items()}
        self._kept += values.values()
        scalars = [Scalar(DTYPES[each.dtype.name], each.ctypes.data) for each in values.values()]
        names = [Span(name.encode(), len(name)) for name in values]
        size = len(values)
        lists = (self._kinds(SCALAR, size), self._pointers(names), self._pointers(scalars))
        return Attributes(ctypes.sizeof(Attributes), None, size, *lists)

    def _error(self, given: int) -> int:
        self._said = Error.from_address(given).message.decode()
        return 1

    def _stream(self, given: int) -> int:
        Got.from_address(given).pointer = self.stream
        return 0

    def _ordinal(self, given: int) -> int:
        Ordinal.from_address(given).number = self.device
        return 0
