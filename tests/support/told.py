"""What lowering tells of a launch, as lines."""

from __future__ import annotations

from tilec.ir.roads import Road, decode


def told(launch) -> list[str]:
    """The notes and the roads of a lowered launch, or of one in an image."""
    return [*launch.notes, *map(str, roads(launch))]


def roads(launch) -> tuple[Road, ...]:
    """The roads alone."""
    return decode(launch.roads) if isinstance(launch.roads, str) else launch.roads


def losses(launch) -> list[str]:
    """The instruction of every road with a loss, with the condition that it misses."""
    return [f"{road.instruction}: {road.loss.condition}" for road in roads(launch) if road.loss is not None]


def no_roles(launch) -> str | None:
    """Why the warps of a launch got no roles."""
    missed = (road.loss for road in roads(launch) if road.loss is not None)
    return next((loss.condition for loss in missed if loss.road == "warp_roles"), None)
