"""What a launch through Metal takes beside what launches on every device do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilec.codegen.image import DeviceLaunch


@dataclass(frozen=True)
class MetalLaunch(DeviceLaunch):
    """``blocks_per_unit``: of a persistent launch, for each core of the GPU."""

    blocks_per_unit: int = 0


def read_launch(fields: Mapping[str, Any]) -> MetalLaunch:
    """The inverse of `dataclasses.asdict` and JSON."""
    wide = None if fields["wide"] is None else tuple(fields["wide"])
    return MetalLaunch(**{**fields, "cluster": tuple(fields["cluster"]), "wide": wide})
