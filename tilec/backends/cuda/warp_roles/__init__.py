"""What all launches share whose warps have roles: rings, barriers, TMA, wgmma."""
