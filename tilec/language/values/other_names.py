"""What people who come from NumPy, torch or Triton look for in T, and what stands for it."""

from __future__ import annotations

_REDUCED = "T.reduce_{0} on a tile, T.{0} on elements"

#: Names that T does not have.
INSTEAD = {
    "sum": "T.reduce_sum on a tile, += on an element",
    "mean": "T.reduce_sum, and divide by the number of elements",
    "maximum": _REDUCED.format("max"),
    "minimum": _REDUCED.format("min"),
    "range": "range or T.serial",
    "arange": "the index of a T.Parallel loop",
    "zeros": "T.alloc_fragment or T.alloc_shared, and T.clear",
    "full": "T.alloc_fragment or T.alloc_shared, and T.fill",
    "load": "T.copy, or A[i, j]",
    "store": "T.copy, or A[i, j] = x",
    "dot": "T.gemm",
    "matmul": "T.gemm",
    "select": "T.if_then_else",
    "relu": "T.max(x, 0)",
    "program_id": "the index that `with T.Kernel(...) as bx` gives",
    "num_programs": "the extents of T.Kernel",
}
