"""Memory and waits, the last passes: places of shared tiles, barriers, fences."""
