"""How long work on a GPU takes: replays of captured graphs between two events, by the driver alone.

Needs the standard library and `tilec.portable.loader`; no framework. A graph leaves out what the host adds to
every launch, which hides kernels of a few microseconds.
"""

from __future__ import annotations

import contextlib
import ctypes
import time
from collections.abc import Callable, Iterator
from typing import Any

from tilec.portable.loader import GpuDriver, cuda_driver
from tilec.portable.timing import PAUSE

#: Seconds that the calls of a graph take together, about, and how many there are at most.
REPLAY_SECONDS, MOST_CALLS = 4e-3, 400
_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED: a framework may allocate while it is captured
_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING: does not wait for the legacy default stream

#: ``call(i, stream)`` queues the work on input set ``i``.
QueueCall = Callable[[int, int], object]


class Device:
    """A stream and two events of one device of a driver, by default CUDA's. Raises LaunchError without a
    driver or the device."""

    def __init__(self, number: int, driver: GpuDriver | None = None) -> None:
        self.number = number
        self._driver = driver or cuda_driver()
        self._stream = ctypes.c_void_p()
        self._events = [ctypes.c_void_p(), ctypes.c_void_p()]
        self.call("cuStreamCreate", ctypes.byref(self._stream), _NON_BLOCKING)
        for event in self._events:
            self.call("cuEventCreate", ctypes.byref(event), 0)

    @property
    def stream(self) -> int:
        """The CUstream, or hipStream_t, that work is measured on."""
        return self._stream.value or 0

    def call(self, function: str, *arguments: object) -> None:
        """One function of the driver. Raises LaunchError with its text."""
        self._driver.call(self.number, function, *arguments)

    def synchronize(self) -> None:
        """Waits for all work of the stream; an error of that work is raised here."""
        self.call("cuStreamSynchronize", self._stream)

    @contextlib.contextmanager
    def capture(self) -> Iterator[list[ctypes.c_void_p]]:
        """Work that is queued on the stream inside becomes a graph: the one entry of the list afterwards."""
        graph, runnable = ctypes.c_void_p(), ctypes.c_void_p()
        made: list[ctypes.c_void_p] = []
        self.call("cuStreamBeginCapture_v2", self._stream, _RELAXED)
        try:
            yield made
        finally:
            self.call("cuStreamEndCapture", self._stream, ctypes.byref(graph))
        self.call("cuGraphInstantiateWithFlags", ctypes.byref(runnable), graph, ctypes.c_ulonglong(0))
        self.call("cuGraphDestroy", graph)
        made.append(runnable)

    def seconds(self, work: Callable[[], Any]) -> float:
        """The time on the device of what ``work`` queues on the stream."""
        start, end = self._events
        self.call("cuEventRecord", start, self._stream)
        work()
        self.call("cuEventRecord", end, self._stream)
        self.call("cuEventSynchronize", end)
        milliseconds = ctypes.c_float()
        self.call("cuEventElapsedTime", ctypes.byref(milliseconds), start, end)
        return milliseconds.value * 1e-3

    def launch(self, graph: ctypes.c_void_p) -> None:
        """Queues a graph."""
        self.call("cuGraphLaunch", graph, self._stream)


class GraphSampler:
    """Replays of a graph of ``calls`` calls, which go through ``sets`` input sets in turn, each sample after
    a pause of ``pause`` seconds and one replay that wakes the device (0: back to back)."""

    def __init__(self, device: Device, call: QueueCall, sets: int = 1, *, pause: float = PAUSE) -> None:
        self._device, self._call, self._pause = device, call, pause
        for number in range(max(2, sets)):
            call(number % sets, device.stream)
        device.synchronize()
        once = device.seconds(lambda: call(0, device.stream))
        wanted = min(MOST_CALLS, int(REPLAY_SECONDS / max(once, 1e-6)))
        self.calls = max(sets, wanted // sets * sets, 1)
        with device.capture() as made:
            for number in range(self.calls):
                call(number % sets, device.stream)
        (self._graph,) = made

    def sample(self) -> float:
        """Seconds of one call on the device."""
        if self._pause:
            self._device.synchronize()
            time.sleep(self._pause)
            self._call(0, self._device.stream)
        return self._device.seconds(lambda: self._device.launch(self._graph)) / self.calls

    def __del__(self) -> None:
        graph = getattr(self, "_graph", None)
        if graph is not None:
            with contextlib.suppress(Exception):  # the device may have failed, or Python may be ending
                self._device.call("cuGraphExecDestroy", graph)
