"""How warps share a product's tile."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from tilec.errors import SourceValueError
from tilec.language.values.kernel.places import source_error
from tilec.spelling import nearest


class GemmWarpPolicy(IntEnum):
    """How warps share a product's tile; a hint, results are equal."""

    Square = 0
    FullRow = 1
    FullCol = 2


def warp_policy(construct: str, policy: Any) -> int:
    """A member of `GemmWarpPolicy`, or its number; SourceValueError for anything else."""
    if policy in tuple(GemmWarpPolicy):
        return int(policy)
    near = nearest(policy, [each.name for each in GemmWarpPolicy]) if isinstance(policy, str) else None
    raise source_error(
        SourceValueError,
        f"{construct}: policy {policy!r} does not exist",
        construct=construct,
        remedy=f"use T.GemmWarpPolicy.{near or 'Square, .FullRow or .FullCol'}",
    )
