"""What lowering says of a launch."""

from __future__ import annotations

from tilec.ir.nodes import Launch


def no_roles(launch: Launch) -> str | None:
    """Why the warps of a launch got no roles."""
    found = (road.loss for road in launch.roads if road.loss is not None)
    return next((loss.condition for loss in found if loss.road == "warp_roles"), None)
