"""The T namespace for modules that it is made of."""

from __future__ import annotations

import sys
from types import ModuleType


def namespace() -> ModuleType:
    """`tilec.language`, which Python loads before any module in it."""
    return sys.modules["tilec.language"]


def offers(name: str) -> bool:
    """Whether the language has a function of that name; cheaper to ask than the namespace, which looks for
    what was meant."""
    found = vars(namespace())
    return callable(found.get(name) or found["_NAMES"].get(name))
