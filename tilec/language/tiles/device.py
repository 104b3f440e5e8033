"""Questions about the device at hand: a build has none, so that there the number of its multiprocessors is a
value of the launch, and others are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilec.language.values.kernel import session as sessions
from tilec.language.values.kernel.places import unsupported

_counts: list[Callable[[], int]] = []


def provide_multiprocessors(count: Callable[[], int]) -> None:
    """What runs kernels in process says here how many multiprocessors their device has."""
    _counts[:] = [count]


def multiprocessors() -> Any:
    """The multiprocessors of the device at hand, of a CPU its cores; a value of the launch in builds."""
    if sessions.for_a_build():
        return num_sms_at_launch()
    if not _counts:
        raise unsupported(
            "the number of multiprocessors outside of a process that runs kernels",
            remedy="give the number of workers",
        )
    return _counts[0]()


def num_sms_at_launch() -> Any:
    """The number that the library sees when it launches. Raises `UnsupportedError` where no kernel of a
    library is under way, which alone can take it."""
    if not sessions.active() or sessions.current("get_num_sms").open_dims:
        raise unsupported(
            "driver.get_num_sms() outside of a kernel",
            why="in a library the number is known when a kernel is launched",
            remedy="ask in the kernel's factory or body",
        )
    return sessions.current("get_num_sms").num_sms()


def refuse_in_builds(question: str, remedy: str) -> None:
    """Raises `UnsupportedError` where a library is built: it serves devices that are not here."""
    if sessions.for_a_build():
        raise unsupported(
            f"driver.{question}()",
            why="the library is built without a device, and one library serves several",
            remedy=remedy,
        )
