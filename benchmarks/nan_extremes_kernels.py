"""The same work twice: NaN dropped, and NaN kept."""

import tilec
import tilec.language as T

_ROWS = 16


@tilec.jit
def make(M, N, form="larger", dtype="float32", keeps=False):
    """The kernel of a form: "larger" and "clamped" of two elements, "row_max", "column_max" of a tile."""
    return {"larger": _larger, "clamped": _clamped, "row_max": _row_max, "column_max": _column_max}[form](
        M, N, dtype, keeps
    )


def _larger(M, N, dtype, keeps):
    @T.prim_func
    def main(X: T.Tensor((M, N), dtype), Y: T.Tensor((M, N), dtype), Z: T.Tensor((M, N), dtype)):
        """Z = max(X, Y)."""
        with T.Kernel(M // _ROWS, threads=256) as bx:
            for i, j in T.Parallel(_ROWS, N):
                row = bx * _ROWS + i
                Z[row, j] = T.max(X[row, j], Y[row, j], nan_propagate=keeps)

    return main


def _clamped(M, N, dtype, keeps):
    @T.prim_func
    def main(X: T.Tensor((M, N), dtype), Y: T.Tensor((M, N), dtype), Z: T.Tensor((M, N), dtype)):
        """Z = min(max(X, -1), 1) + Y."""
        with T.Kernel(M // _ROWS, threads=256) as bx:
            for i, j in T.Parallel(_ROWS, N):
                row = bx * _ROWS + i
                Z[row, j] = T.clamp(X[row, j], -1.0, 1.0, nan_propagate=keeps) + Y[row, j]

    return main


def _row_max(M, N, dtype, keeps):
    @T.prim_func
    def main(X: T.Tensor((M, N), dtype), Z: T.Tensor((M,), dtype)):
        """Z = the maximum of each row of X."""
        with T.Kernel(M // _ROWS, threads=256) as bx:
            tile, most = T.alloc_fragment((_ROWS, N), dtype), T.alloc_fragment((_ROWS,), dtype)
            T.copy(X[bx * _ROWS, 0], tile)
            T.reduce_max(tile, most, dim=1, nan_propagate=keeps)
            T.copy(most, Z[bx * _ROWS])

    return main


def _column_max(M, N, dtype, keeps):
    @T.prim_func
    def main(X: T.Tensor((M, N), dtype), Z: T.Tensor((M // _ROWS, N), dtype)):
        """Z = the maximum of each column of tiles of X."""
        with T.Kernel(M // _ROWS, threads=256) as bx:
            tile, most = T.alloc_fragment((_ROWS, N), dtype), T.alloc_fragment((N,), dtype)
            T.copy(X[bx * _ROWS, 0], tile)
            T.reduce_max(tile, most, dim=0, nan_propagate=keeps)
            T.copy(most, Z[bx, 0])

    return main
