"""Streams, captures, contexts and devices through the CUDA driver alone."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED
_NON_BLOCKING = 1


class DriverError(RuntimeError):
    """A call that the driver refused."""


def _check(function: str, *arguments: Any) -> None:
    result = getattr(_dll(), function)(*arguments)
    if result:
        name = ctypes.c_char_p()
        _dll().cuGetErrorName(result, ctypes.byref(name))
        raise DriverError(f"CUDA error: {function}: {(name.value or b'?').decode()}")


def _dll() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def start(device: int = 0) -> None:
    """Makes the device's primary context the current one."""
    handle, context = ctypes.c_int(), ctypes.c_void_p()
    _check("cuInit", 0)
    _check("cuDeviceGet", ctypes.byref(handle), device)
    _check("cuDevicePrimaryCtxRetain", ctypes.byref(context), handle)
    _check("cuCtxSetCurrent", context)


def device_count() -> int:
    """How many devices there are."""
    count = ctypes.c_int()
    _check("cuDeviceGetCount", ctypes.byref(count))
    return count.value


def describe(device: int = 0) -> dict[str, Any]:
    """Name, compute capability, multiprocessors, and the driver's version as drivers count."""
    handle, version = ctypes.c_int(), ctypes.c_int()
    name = ctypes.create_string_buffer(100)
    _check("cuDeviceGet", ctypes.byref(handle), device)
    _check("cuDeviceGetName", name, len(name), handle)
    _check("cuDriverGetVersion", ctypes.byref(version))
    values = []
    for attribute in (75, 76, 16):  # compute capability, multiprocessors
        value = ctypes.c_int()
        _check("cuDeviceGetAttribute", ctypes.byref(value), attribute, handle)
        values.append(value.value)
    return {
        "gpu": name.value.decode(),
        "capability": f"{values[0]}.{values[1]}",
        "multiprocessors": values[2],
        "driver": version.value,
    }


class Stream:
    """A stream of the current context; ``handle`` is what kernels are launched on."""

    def __init__(self) -> None:
        made = ctypes.c_void_p()
        _check("cuStreamCreate", ctypes.byref(made), _NON_BLOCKING)
        self.handle: int = made.value or 0

    def synchronize(self) -> None:
        """Waits for its work."""
        _check("cuStreamSynchronize", ctypes.c_void_p(self.handle))


class Graph:
    """What a stream captured, ready to be launched."""

    def __init__(self, stream: Stream) -> None:
        graph, self._made = ctypes.c_void_p(), ctypes.c_void_p()
        _check("cuStreamEndCapture", ctypes.c_void_p(stream.handle), ctypes.byref(graph))
        _check("cuGraphInstantiateWithFlags", ctypes.byref(self._made), graph, ctypes.c_uint64(0))

    def launch(self, stream: Stream) -> None:
        """Runs it once on ``stream``."""
        _check("cuGraphLaunch", self._made, ctypes.c_void_p(stream.handle))


def begin_capture(stream: Stream) -> None:
    """``Graph(stream)`` ends it."""
    _check("cuStreamBeginCapture_v2", ctypes.c_void_p(stream.handle), _RELAXED)


@contextmanager
def own_context(device: int = 0) -> Iterator[None]:
    """Inside, a context beside the primary one is current."""
    handle, made = ctypes.c_int(), ctypes.c_void_p()
    _check("cuDeviceGet", ctypes.byref(handle), device)
    _check("cuCtxCreate_v2", ctypes.byref(made), 0, handle)
    try:
        yield
    finally:
        _check("cuCtxDestroy_v2", made)


def run_ptx(text: str, name: str, threads: int, *arguments: Any) -> None:
    """One block of a kernel on the default stream, without waiting. ``arguments``: ctypes values."""
    library, kernel = ctypes.c_void_p(), ctypes.c_void_p()
    none = ctypes.c_void_p()
    _check("cuLibraryLoadData", ctypes.byref(library), text.encode(), none, none, 0, none, none, 0)
    _check("cuLibraryGetKernel", ctypes.byref(kernel), library, name.encode())
    pointers = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(each) for each in arguments))
    _check("cuLaunchKernel", kernel, 1, 1, 1, threads, 1, 1, 0, none, pointers, none)
    _dll().cuCtxSynchronize()
