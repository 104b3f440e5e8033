"""``tilec.transform``: the names of pass configs, and a pass that changes nothing."""

from __future__ import annotations

from typing import Any

from tilec.language.frontend.pass_configs import PassConfigKey
from tilec.packages import find_aliases, names_of_others


def simplify_prim_func(func: Any) -> Any:
    """``func``: kernels are simplified while they are elaborated."""
    return func


__all__ = ["PassConfigKey", "simplify_prim_func"]

find_aliases(__name__)
__getattr__ = names_of_others(__name__)
