"""What runs the sources and launches of the stand-in for Metal (programs/fake_metal.c), in a process that
loads it: they are compiled for this machine (tests/support/machines/metal_compiled.py).
``python metal_device.py LIBRARY TEXT`` runs a script with what stands here."""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support" / "machines"))

from metal_compiled import compiled

from tilec.portable.loader import METAL, LaunchError, load  # noqa: F401  (scripts have them)

FAKE = ctypes.CDLL("libfakemetal.so")
FAKE.fake_metal_buffer.restype = FAKE.fake_metal_object.restype = ctypes.c_void_p
FAKE.fake_metal_buffer.argtypes = [ctypes.c_void_p]
FAKE.fake_metal_events.restype = ctypes.c_char_p
COMPILED: dict[bytes, ctypes.CDLL] = {}
_DRIVER = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_uint),
    ctypes.POINTER(ctypes.c_void_p), ctypes.c_int,
)  # fmt: skip


class OnGpu:
    """An array over host memory that says it is in a buffer of Metal's, ``offset`` bytes behind its start."""

    def __init__(self, array: np.ndarray, offset: int = 0) -> None:
        self.array, self.offset = array, offset
        self.buffer = FAKE.fake_metal_buffer(array.ctypes.data - offset)

    def __dlpack_device__(self) -> tuple[int, int]:
        return METAL, 0

    def __dlpack__(self, **_options: object) -> object:
        made = self.array.__dlpack__()
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        tensor = pointer(made, b"dltensor")
        ctypes.c_void_p.from_address(tensor).value = self.buffer
        (ctypes.c_int32 * 2).from_address(tensor + 8)[:] = [METAL, 0]
        ctypes.c_uint64.from_address(tensor + 40).value = self.offset
        return made


def events() -> str:
    """What was done with queues since the last question."""
    said = FAKE.fake_metal_events().decode()
    FAKE.fake_metal_forget()
    return said.strip()


@_DRIVER
def _drive(source, symbol, shape, buffers, count):
    if b"kernel void" not in source:
        return 1
    if source not in COMPILED:
        COMPILED[source] = compiled(source.decode(), Path(tempfile.mkdtemp()))
    if symbol is None:
        return 0
    return getattr(COMPILED[source], f"run_{symbol.decode()}")(buffers, shape)


if __name__ == "__main__":
    os.environ["FAKE_METAL_DRIVER"] = str(ctypes.cast(_drive, ctypes.c_void_p).value)
    library = load(sys.argv[1])
    exec(compile(sys.argv[2], "script", "exec"))
