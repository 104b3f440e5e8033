"""Options of the compiler that a kernel carries with it: part of what it is, as they change its code.

Only what has an effect is kept, in one order: kernels that differ in other pass configs are the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilec.errors import InputError

FAST_MATH = "fast_math"
NO_ROLES = "no_roles"
NO_TMA = "no_tma"
REGISTER_LEVEL = "register_usage_level"
FLAGS = "compile_flags"
#: The text of T.import_source.
IMPORTED = "imported"
#: The pass config that keeps products from wgmma, too.
AGAINST_WGMMA = "tl.disable_wgmma"
#: The one that keeps loads from TMA, those that an author writes, too.
AGAINST_TMA = "tl.disable_tma_lower"
#: Pass configs that keep warps from getting roles: each takes away what roles are made of.
_AGAINST_ROLES = (AGAINST_WGMMA, "tl.disable_warp_specialized", AGAINST_TMA)
_MOST_REGISTER_LEVEL = 10

Options = tuple[tuple[str, object], ...]


def options_of(configs: Mapping[str, Any], flags: Sequence[str] = (), imported: object = "") -> Options:
    """The options that pass configs (by the strings of their keys), flags of the device compiler and imported
    source come to. Raises InputError for a value that an option cannot have."""
    found: dict[str, object] = {}
    if configs.get("tl.enable_fast_math", configs.get("tl.disable_fast_math") is False):
        found[FAST_MATH] = True
    against = next((key for key in _AGAINST_ROLES if configs.get(key)), None)
    if against is not None:
        found[NO_ROLES] = against
    if configs.get(AGAINST_TMA):
        found[NO_TMA] = True
    level = configs.get("tl.ptxas_register_usage_level")
    if level is not None:
        found[REGISTER_LEVEL] = _register_level(level)
    every = (*_listed(configs.get("tl.device_compile_flags")), *flags)
    if every:
        found[FLAGS] = every
    if imported:
        found[IMPORTED] = imported
    return tuple(found.items())


def _register_level(level: Any) -> int:
    if type(level) is int and 0 <= level <= _MOST_REGISTER_LEVEL:
        return level
    raise InputError(f"tl.ptxas_register_usage_level is {level!r}", remedy=f"use 0 to {_MOST_REGISTER_LEVEL}")


def _listed(flags: Any) -> tuple[str, ...]:
    import shlex

    if flags is None:
        return ()
    return tuple(shlex.split(flags)) if isinstance(flags, str) else tuple(map(str, flags))
