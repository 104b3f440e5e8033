"""``tilec.tileop.base``: how the warps of a block share a product."""

from tilec.language.tiles import GemmWarpPolicy

__all__ = ["GemmWarpPolicy"]
