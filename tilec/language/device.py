"""Questions about the device at hand: a build has none, so that there each is refused."""

from __future__ import annotations

from tilec.language import session as sessions
from tilec.language.places import unsupported


def refuse_in_builds(question: str, remedy: str) -> None:
    """Raises `UnsupportedError` where a library is built: it serves devices that are not here."""
    if sessions.for_a_build():
        raise unsupported(
            f"driver.{question}()",
            why="the library is built without a device, and one library serves several",
            remedy=remedy,
        )
