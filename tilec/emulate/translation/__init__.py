"""Device TIR as Python source: expressions, calls of instructions, where warps wait."""
