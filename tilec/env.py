"""``tilec.env``: switches of this process; environment variables are in `docs/in-process.md`."""

from __future__ import annotations

import logging

from tilec.inprocess.store import disable_cache, enable_cache, is_cache_enabled


def set_log_level(level: int | str) -> None:
    """The level of the logger "tilec", as a number or a name of `logging`."""
    logging.getLogger("tilec").setLevel(level.upper() if isinstance(level, str) else level)


__all__ = ["disable_cache", "enable_cache", "is_cache_enabled", "set_log_level"]
