"""Products whose second operand comes in groups of its rows, as launches over matrices that TMA takes."""
