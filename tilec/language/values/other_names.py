"""What people who come from NumPy, torch or Triton look for in T, and what stands for it."""

from __future__ import annotations

#: Names of arguments that functions of T do not have.
ARGUMENTS = {"stages": "num_stages", "axis": "dim", "num_warps": "threads", "block_size": "threads"}

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
    "silu": "x * T.sigmoid(x)",
    "swish": "x * T.sigmoid(x)",
    "gelu": "0.5 * x * (1 + T.erf(x * 0.7071067811865476))",
    "softplus": "T.log1p(T.exp(x))",
    "softmax": "T.reduce_max, T.exp and T.reduce_sum on a tile",
    "square": "x * x",
    "power": "T.pow",
    "absolute": "T.abs",
    "arctan": "T.atan",
    "inf": "T.infinity(dtype)",
    "nan": 'float("nan")',
    "pi": "math.pi",
    "e": "math.e",
    "ones": "T.alloc_fragment or T.alloc_shared, and T.fill",
    "empty_like": "T.alloc_fragment or T.alloc_shared",
    "zeros_like": "T.alloc_fragment or T.alloc_shared, and T.clear",
    "prange": "T.Parallel",
    "static_range": "T.unroll, or a list of Python's, which is expanded",
    "syncthreads": "T.sync_threads",
    "threadIdx": "T.get_thread_binding",
    "blockIdx": "the index that `with T.Kernel(...) as bx` gives",
    "blockDim": "T.get_thread_extent",
    "program_id": "the index that `with T.Kernel(...) as bx` gives",
    "num_programs": "the extents of T.Kernel",
}
