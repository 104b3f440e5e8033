"""The sm_90a strategy for matrix products: TMA rings, warp roles, wgmma."""
