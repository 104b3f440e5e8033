"""Compile and measure tasks on a dask.distributed cluster: one measuring slot for each device of a worker.

Workers see the kernels' sources under the same paths as this program, and have tilec installed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any, TypeVar

from tilec.errors import EnvironmentError_
from tilec.portable.runner.process import DeviceMissing
from tilec.tune.measure.backends import SlotLost
from tilec.tune.measure.slots import Slot, close_workers, facts

Result = TypeVar("Result")

#: Seconds between two looks at whether a worker is still there.
_LOOK = 0.5


class Cluster:
    """The workers of the scheduler at ``address``. Slots are their ``devices``; workers that lack one of them
    compile alone. Compile tasks of a worker that goes away run elsewhere.

    Raises EnvironmentError_ where distributed is not installed, or no worker has a device."""

    def __init__(self, address: str, devices: Sequence[str], threads: int = 0) -> None:
        try:
            from distributed import Client
        except ImportError as error:
            remedy = "pip install 'tilec[cluster]'"
            raise EnvironmentError_("a scheduler needs dask.distributed", remedy=remedy) from error
        try:
            self._client = Client(address, timeout=10, set_as_default=False)
        except OSError as error:
            raise EnvironmentError_(
                f"there is no scheduler at {address}", why=str(error), remedy="start dask scheduler there"
            ) from error
        workers: dict[str, int] = self._client.nthreads()
        self.at_once = max(sum(workers.values()), 1)
        possible = [Slot(device, threads, worker) for worker in sorted(workers) for device in devices]
        self.slots: Sequence[Slot] = [slot for slot in possible if self._has(slot)]
        self._executor: Executor | None = None
        if not self.slots:
            self.close()
            raise EnvironmentError_(
                f"no worker of {address} has {' or '.join(devices)}", remedy="name other --devices"
            )

    def compilers(self) -> Executor:
        """The executor interface of the cluster."""
        if self._executor is None:
            self._executor = self._client.get_executor(pure=False)
        return self._executor

    def run(self, slot: Slot, function: Callable[..., Result], *arguments: Any) -> Result:
        """On the slot's worker. Raises SlotLost when it goes away."""
        from distributed import TimeoutError as Late
        from distributed.client import FutureCancelledError
        from distributed.scheduler import KilledWorker

        future = self._client.submit(
            function, *arguments, workers=[slot.host], allow_other_workers=False, pure=False
        )
        while True:
            try:
                result: Result = future.result(timeout=_LOOK)
                return result
            except (Late, TimeoutError):
                if slot.host not in self._client.nthreads():
                    future.cancel()
                    raise SlotLost(f"worker {slot.host} has left the cluster") from None
            except (KilledWorker, FutureCancelledError) as error:
                raise SlotLost(f"worker {slot.host} died: {error}") from error

    def close(self) -> None:
        """Ends worker processes; the cluster stays."""
        try:
            self._client.run(close_workers, on_error="ignore")
        finally:
            self._client.close()

    def _has(self, slot: Slot) -> bool:
        try:
            self.run(slot, facts, slot)
        except (DeviceMissing, SlotLost):
            return False
        return True
