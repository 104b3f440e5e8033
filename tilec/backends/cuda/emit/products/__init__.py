"""Products of warps: operands, instructions, sums on their way to shared tiles."""
