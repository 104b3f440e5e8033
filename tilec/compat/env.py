"""``tilec.env``: switches of this process; environment variables are in `docs/in-process.md`."""

from __future__ import annotations

import logging
import sys

from tilec.cache import clear_cache
from tilec.inprocess.compilation.store import disable_cache, enable_cache, is_cache_enabled
from tilec.packages import names_of_others


def set_log_level(level: int | str) -> None:
    """The level of the logger "tilec", as a number or a name of `logging`."""
    logging.getLogger("tilec").setLevel(level.upper() if isinstance(level, str) else level)


#: ``from tilec.env import env``: an object with these functions.
env = sys.modules[__name__]

__getattr__ = names_of_others(__name__)

__all__ = ["clear_cache", "disable_cache", "enable_cache", "is_cache_enabled", "set_log_level"]
