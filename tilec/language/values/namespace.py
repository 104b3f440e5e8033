"""The T namespace for modules that it is made of."""

from __future__ import annotations

import sys
from types import ModuleType


def namespace() -> ModuleType:
    """`tilec.language`, which Python loads before any module in it."""
    return sys.modules["tilec.language"]
