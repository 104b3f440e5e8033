"""Questions about the device at hand: a build has none, so that there each is refused."""

from __future__ import annotations

from collections.abc import Callable

from tilec.language import session as sessions
from tilec.language.places import unsupported

_counts: list[Callable[[], int]] = []


def provide_multiprocessors(count: Callable[[], int]) -> None:
    """What runs kernels in process says here how many multiprocessors their device has."""
    _counts[:] = [count]


def multiprocessors() -> int:
    """The multiprocessors of the device at hand, of a CPU its cores; refused in builds."""
    refuse_in_builds("get_num_sms", "pass the number of blocks as a config key or a T.int32 argument")
    if not _counts:
        raise unsupported(
            "the number of multiprocessors outside of a process that runs kernels",
            remedy="give the number of workers",
        )
    return _counts[0]()


def refuse_in_builds(question: str, remedy: str) -> None:
    """Raises `UnsupportedError` where a library is built: it serves devices that are not here."""
    if sessions.for_a_build():
        raise unsupported(
            f"driver.{question}()",
            why="the library is built without a device, and one library serves several",
            remedy=remedy,
        )
