"""What runs the launches of the stand-in for libamdhip64 (programs/fake_hip.c), in a process that loads it:
they are checked against the metadata of the code object and then run on the emulator, from the tile IR of the
library. ``python hip_device.py LIBRARY TEXT`` runs a script with what stands here."""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from pathlib import Path

import numpy as np

from tilec.backends.hip.codegen.notes import read_notes
from tilec.emulate import EmulatedKernel
from tilec.ir.interp.values import numpy_dtype
from tilec.ir.nodes import TensorParam
from tilec.ir.text.parser import parse_kernel
from tilec.package.inspect import read_library
from tilec.portable.loader import ROCM, LaunchError, load  # noqa: F401  (scripts have them)
from tilec.sizes import evaluate_size
from tilec.targets import parse_target

CODE: list[Emulated] = []
LAUNCHED: list[tuple[str, tuple[int, ...]]] = []
_MOST_SHARED = 64 * 1024
_DRIVER = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.POINTER(ctypes.c_uint),
    ctypes.POINTER(ctypes.c_void_p),
)  # fmt: skip


class OnGpu:
    """An array over host memory that says it is on an AMD GPU."""

    def __init__(self, array: np.ndarray, index: int = 0) -> None:
        self.array, self.index = array, index

    def __dlpack_device__(self) -> tuple[int, int]:
        return ROCM, self.index

    def __dlpack__(self, **_options: object) -> object:
        return _capsule(self.array, self.index)


def _capsule(array: np.ndarray, index: int) -> object:
    """NumPy's capsule with another device in it."""
    made = array.__dlpack__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    device = (ctypes.c_int32 * 2).from_address(pointer(made, b"dltensor") + 8)
    device[0], device[1] = ROCM, index
    return made


@_DRIVER
def _launch(image, size, symbol, shape, params):
    note = read_notes(ctypes.string_at(image, size))[symbol.decode()]
    grid, block, shared = tuple(shape[:3]), tuple(shape[3:6]), shape[6]
    fits = all(offset + width <= note.kernarg_bytes for offset, width in note.arguments)
    if not fits or int(np.prod(block)) != note.threads or shared + note.shared > _MOST_SHARED:
        return 1
    arguments = [ctypes.string_at(params[n], width) for n, (_, width) in enumerate(note.arguments)]
    LAUNCHED.append((symbol.decode(), grid))
    return CODE[0].run(symbol.decode(), arguments)


class Emulated:
    """The code of a library's kernels by their symbols, as the emulator runs it."""

    def __init__(self, path: Path) -> None:
        info = read_library(path)
        texts, self.codes = info.ir_texts(), {}
        for entry in (one for kernel in info.metadata["kernels"] for one in kernel["variants"]):
            code = entry["target"], parse_kernel(texts[entry["id"]])
            self.codes |= {launch["symbol"]: code for launch in entry["launches"]}

    def run(self, symbol: str, arguments: list[bytes]) -> int:
        """Runs a kernel of one launch on the memory that its arguments lead to: pointers, numbers, dims."""
        target, kernel = self.codes[symbol]
        tensors = [param for param in kernel.params if isinstance(param, TensorParam)]
        numbers = [param for param in kernel.params if not isinstance(param, TensorParam)]
        given = dict(zip([*tensors, *numbers], arguments, strict=False))
        sizes = map(_integer, arguments[len(kernel.params) :])
        dims = dict(zip((dim.name for dim in kernel.dims), sizes, strict=True))
        args = [
            _array(param, given[param], dims) if param in tensors else struct.unpack("<f", given[param])[0]
            for param in kernel.params
        ]
        EmulatedKernel(kernel, parse_target(target))(args, dims)
        return 0


def _integer(text: bytes) -> int:
    return int.from_bytes(text, "little", signed=True)


def _array(param: TensorParam, pointer: bytes, dims: dict[str, int]) -> np.ndarray:
    address = _integer(pointer)
    shape = tuple(evaluate_size(text, dims) for text in param.extents)
    dtype = numpy_dtype(str(param.buffer.dtype))
    size = int(np.prod(shape)) * dtype.itemsize
    return np.frombuffer((ctypes.c_char * size).from_address(address), dtype).reshape(shape)


if __name__ == "__main__":
    os.environ["FAKE_HIP_DRIVER"] = str(ctypes.cast(_launch, ctypes.c_void_p).value)
    library = load(sys.argv[1])
    CODE.append(Emulated(Path(sys.argv[1])))
    exec(compile(sys.argv[2], "script", "exec"))
