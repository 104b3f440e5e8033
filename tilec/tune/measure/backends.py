"""Where compile and measure tasks run: executors of `concurrent.futures`, here or on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

from tilec.build.processes.attempts import Compilers
from tilec.tune.measure.slots import Slot, close_workers

Result = TypeVar("Result")


class SlotLost(RuntimeError):
    """A slot went away with what it was doing; others may go on."""


class Backend(Protocol):
    """``slots``: the devices that measure. ``at_once``: compile tasks that run at a time."""

    @property
    def slots(self) -> Sequence[Slot]:
        """The devices, in order of preference."""

    @property
    def at_once(self) -> int:
        """Compile tasks that run at a time."""

    def compilers(self) -> Executor:
        """The executor of compile tasks; a new one after a process of the last one died."""

    def run(self, slot: Slot, function: Callable[..., Result], *arguments: Any) -> Result:
        """The result of a function in a slot. Raises SlotLost."""

    def close(self) -> None:
        """Ends what was started."""


class Local:
    """This machine: compile processes, and a thread for each device that asks its worker process."""

    def __init__(self, devices: Sequence[str], *, jobs: int, threads: int = 0) -> None:
        self.slots: Sequence[Slot] = [Slot(device, threads) for device in devices]
        self.at_once = jobs
        self._threads = {slot: ThreadPoolExecutor(1, thread_name_prefix=slot.device) for slot in self.slots}
        self._compilers = Compilers(jobs)

    def compilers(self) -> Executor:
        """A pool of compile processes."""
        return self._compilers()

    def run(self, slot: Slot, function: Callable[..., Result], *arguments: Any) -> Result:
        """In the slot's thread."""
        future: Future[Result] = self._threads[slot].submit(function, *arguments)
        return future.result()

    def close(self) -> None:
        """Ends compile and worker processes."""
        self._compilers.close()
        close_workers()
        for thread in self._threads.values():
            thread.shutdown(wait=False, cancel_futures=True)
