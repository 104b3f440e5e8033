"""``tilec.tileop.base``: how the warps of a block share a product."""

from tilec.language.tiles.operations.warp_policies import GemmWarpPolicy

__all__ = ["GemmWarpPolicy"]
