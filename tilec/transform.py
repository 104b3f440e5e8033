"""``tilec.transform``: the names of pass configs, and a pass that changes nothing."""

from __future__ import annotations

from typing import Any

from tilec.inprocess.pass_configs import PassConfigKey


def simplify_prim_func(func: Any) -> Any:
    """``func``: kernels are simplified while they are elaborated."""
    return func


__all__ = ["PassConfigKey", "simplify_prim_func"]
