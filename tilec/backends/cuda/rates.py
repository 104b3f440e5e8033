"""Runs the CUDA probe (probe.cu, compiled elsewhere); needs the standard library and the loader."""

from __future__ import annotations

import contextlib
import ctypes
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tilec.portable.graphs import Device
from tilec.portable.loader import DeviceMemory, LaunchError
from tilec.portable.timing import PAUSE

_SECONDS, _ROUNDS = 1e-3, 9
_CALIBRATING_TRIPS = 2000
_COPIED = (1 << 29, 1 << 26)  # bytes of a copy's source: the second where the first finds no memory
_COPY_THREADS, _COPIES = 256, 4  # copies in a row: the first does not find the clocks up
_MULTIPROCESSORS = 16  # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT


@dataclass(frozen=True)
class Product:
    """A function of the probe: the element type whose rate it measures, its threads, blocks for each
    multiprocessor, and the operations of one trip of one block."""

    name: str
    dtype: str
    threads: int
    blocks: int
    operations: int


def rates(device: int, code: bytes, products: Sequence[Product]) -> tuple[dict[str, float], float]:
    """Operations per second by element type, and bytes per second of a copy: the best of some rounds.
    Raises LaunchError."""
    on = Device(device)
    with _module(on, code) as functions:
        flops = {each.dtype: _product_rate(on, functions[each.name], each) for each in products}
        return flops, _copy_rate(on, functions["copy"])


class _Functions(Mapping[str, ctypes.c_void_p]):
    """The functions of a module, by name."""

    def __init__(self, device: Device, module: ctypes.c_void_p) -> None:
        self._device, self._module = device, module

    def __getitem__(self, name: str) -> ctypes.c_void_p:
        function = ctypes.c_void_p()
        self._device.call("cuModuleGetFunction", ctypes.byref(function), self._module, name.encode())
        return function

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


@contextlib.contextmanager
def _module(device: Device, code: bytes) -> Iterator[_Functions]:
    module = ctypes.c_void_p()
    device.call("cuModuleLoadData", ctypes.byref(module), code)
    try:
        yield _Functions(device, module)
    finally:
        device.call("cuModuleUnload", module)


def _product_rate(device: Device, function: ctypes.c_void_p, product: Product) -> float:
    """Operations per second."""
    blocks = product.blocks * multiprocessors(device)
    out = DeviceMemory(device.number, 1 << 16)

    def launch(trips: int) -> None:
        arguments: list[ctypes.c_uint64 | ctypes.c_int] = [ctypes.c_uint64(out.address), ctypes.c_int(trips)]
        _launch(device, function, blocks, product.threads, arguments)

    once = _least_seconds(device, lambda: launch(_CALIBRATING_TRIPS), 1)
    trips = max(_CALIBRATING_TRIPS, int(_CALIBRATING_TRIPS * _SECONDS / once))
    return product.operations * blocks * trips / _least_seconds(device, lambda: launch(trips), _ROUNDS)


def _copy_rate(device: Device, function: ctypes.c_void_p) -> float:
    """Bytes per second, read and written."""
    size, source, target = _two_blocks(device)
    blocks = size // 16 // _COPY_THREADS
    arguments = [
        ctypes.c_uint64(source.address),
        ctypes.c_uint64(target.address),
        ctypes.c_uint64(size // 16),
    ]

    def launch() -> None:
        for _ in range(_COPIES):
            _launch(device, function, blocks, _COPY_THREADS, arguments)

    return 2 * size * _COPIES / _least_seconds(device, launch, _ROUNDS)


def _least_seconds(device: Device, work: Callable[[], None], rounds: int) -> float:
    """The least time of some rounds, each after a pause and once more of the same, which wakes the device."""
    found = []
    for _ in range(rounds):
        time.sleep(PAUSE)
        work()
        found.append(device.seconds(work))
    return min(found)


def _two_blocks(device: Device) -> tuple[int, DeviceMemory, DeviceMemory]:
    for size in _COPIED:
        with contextlib.suppress(LaunchError):
            return size, DeviceMemory(device.number, size), DeviceMemory(device.number, size)
    raise LaunchError(42, "TILEC_ERR_DRIVER", f"the device has no {2 * _COPIED[-1] >> 20} MiB to spare")


def _launch(
    device: Device,
    function: ctypes.c_void_p,
    blocks: int,
    threads: int,
    arguments: Sequence[ctypes.c_uint64 | ctypes.c_int],
) -> None:
    """Queues a kernel on the device's stream."""
    pointers = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(each) for each in arguments))
    sizes = [blocks, 1, 1, threads, 1, 1, 0]
    device.call(
        "cuLaunchKernel", function, *map(ctypes.c_uint, sizes), ctypes.c_void_p(device.stream), pointers, None
    )


def multiprocessors(device: Device) -> int:
    """How many the device has."""
    return attribute(device, _MULTIPROCESSORS)


def attribute(device: Device, number: int) -> int:
    """One of the driver's CU_DEVICE_ATTRIBUTE values."""
    value, handle = ctypes.c_int(), ctypes.c_int()
    device.call("cuDeviceGet", ctypes.byref(handle), device.number)
    device.call("cuDeviceGetAttribute", ctypes.byref(value), number, handle)
    return value.value


def device_name(device: Device) -> str:
    """As the driver names it."""
    handle, text = ctypes.c_int(), ctypes.create_string_buffer(256)
    device.call("cuDeviceGet", ctypes.byref(handle), device.number)
    device.call("cuDeviceGetName", text, 256, handle)
    return text.value.decode(errors="replace")
