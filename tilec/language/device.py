"""Questions about the device at hand: a build has none, so each is refused with what to write instead."""

from __future__ import annotations

from typing import NoReturn

from tilec.language.places import unsupported


def get_num_sms(device_id: int = 0) -> NoReturn:
    """How many multiprocessors the device has. Raises `UnsupportedError`: a library is built without one."""
    raise unsupported(
        "driver.get_num_sms()",
        why="the library is built without a device, and one library serves several",
        remedy="pass the number of blocks as a config key or a T.int32 argument",
    )
