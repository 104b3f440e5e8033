"""What runs the launches of the stand-in for libamdhip64 (programs/fake_hip.c), in a process that loads it:
they are checked against the metadata of the code object and then run on the emulator, from the tile IR of the
library that has it; with FAKE_HIP_IDLE they are checked alone. ``python hip_device.py LIBRARY TEXT`` runs a
script with what stands here."""

from __future__ import annotations

import ctypes
import os
import re
import struct
import sys
from functools import cache
from pathlib import Path

import numpy as np

from tilec.portable.loader import ROCM, LaunchError, load  # noqa: F401  (scripts have them)

LAUNCHED: list[str] = []
#: By the number of a graph the symbols and arguments of its launches.
GRAPHS: dict[int, list[tuple[str, list[bytes]]]] = {}
_MOST_SHARED = 64 * 1024
#: Libraries of others.
_FOREIGN = re.compile(r"^/(usr|lib)|site-packages|/lib/(python|libpython)|libamdhip64")


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


def run(image, size, symbol, shape, params):
    """A launch, or with ``shape[7]`` one of a graph, or all of that graph."""
    from tilec.backends.hip.codegen.notes import read_notes

    if symbol is None:
        return max(_execute(*launch) for launch in GRAPHS[shape[7]])
    note = read_notes(ctypes.string_at(image, size))[symbol.decode()]
    block, shared = tuple(shape[3:6]), shape[6]
    fits = all(offset + width <= note.kernarg_bytes for offset, width in note.arguments)
    if not fits or int(np.prod(block)) != note.threads or shared + note.shared > _MOST_SHARED:
        return 1
    arguments = [ctypes.string_at(params[n], width) for n, (_, width) in enumerate(note.arguments)]
    if shape[7]:
        GRAPHS.setdefault(shape[7], []).append((symbol.decode(), arguments))
        return 0
    return _execute(symbol.decode(), arguments)


def _execute(symbol: str, arguments: list[bytes]) -> int:
    """Runs a kernel of one launch on the memory that its arguments lead to: pointers, numbers, dims."""
    LAUNCHED.append(symbol)
    if "FAKE_HIP_IDLE" in os.environ:
        return 0
    from tilec.ir.nodes import TensorParam

    emulated, kernel = _code(symbol)
    tensors = [param for param in kernel.params if isinstance(param, TensorParam)]
    numbers = [param for param in kernel.params if not isinstance(param, TensorParam)]
    given = dict(zip([*tensors, *numbers], arguments, strict=False))
    sizes = map(_integer, arguments[len(kernel.params) :])
    dims = dict(zip((dim.name for dim in kernel.dims), sizes, strict=True))
    args = [
        _array(param, given[param], dims) if param in tensors else struct.unpack("<f", given[param])[0]
        for param in kernel.params
    ]
    emulated(args, dims)
    return 0


@cache
def _code(symbol: str) -> tuple[object, object]:
    """The kernel with a launch of this name among those of the libraries that this process has loaded: on the
    emulator, and as tile IR."""
    from tilec.emulate import EmulatedKernel
    from tilec.ir.text.parser import parse_kernel
    from tilec.package.library.inspect import read_library
    from tilec.targets import parse_target

    mapped = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if ".so" in line}
    for path in sorted(path for path in mapped if not _FOREIGN.search(path)):
        info = read_library(Path(path))
        for entry in (one for kernel in info.metadata["kernels"] for one in kernel["variants"]):
            if symbol in (launch["symbol"] for launch in entry["launches"]):
                kernel = parse_kernel(info.ir_texts()[entry["id"]])
                return EmulatedKernel(kernel, parse_target(entry["target"])), kernel
    raise KeyError(symbol)


def _integer(text: bytes) -> int:
    return int.from_bytes(text, "little", signed=True)


def _array(param: object, pointer: bytes, dims: dict[str, int]) -> np.ndarray:
    from tilec.ir.interp.values import numpy_dtype
    from tilec.sizes import evaluate_size

    address = _integer(pointer)
    shape = tuple(evaluate_size(text, dims) for text in param.extents)
    dtype = numpy_dtype(str(param.buffer.dtype))
    size = int(np.prod(shape)) * dtype.itemsize
    return np.frombuffer((ctypes.c_char * size).from_address(address), dtype).reshape(shape)


if __name__ == "__main__":
    import hip_device

    exec(compile(sys.argv[2], "script", "exec"), {**vars(hip_device), "library": load(sys.argv[1])})
