"""Buffers and the operations on them: memory, copies, products, reductions, parameters."""
