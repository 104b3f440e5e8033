"""Products: operands as instructions take them, which instruction it is, what becomes of sums."""
