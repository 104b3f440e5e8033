"""Small kernels of every form."""

import tilec
import tilec.language as T

SHIFT = 1.0


@tilec.jit(out_idx=[-1])
def axpy(n, block=64, dtype="float32"):
    @T.prim_func
    def main(X: T.Tensor((n,), dtype), a: T.float32, Y: T.Tensor((n,), dtype)):
        with T.Kernel(T.ceildiv(n, block), threads=64) as bx:
            for i in T.Parallel(block):
                Y[bx * block + i] = a * X[bx * block + i]

    return main


@tilec.jit
def linear(A, B, out_dtype: T.dtype = T.float32, bM: int = 32, bN: int = 32, bK: int = 32):
    M, N, K = T.const("M, N, K")
    A: T.Tensor[[M, K], T.float32]
    B: T.Tensor[[N, K], T.float32]
    assert K % 8 == 0, "K is a multiple of 8"
    C = T.empty((M, N), out_dtype)
    with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=128) as (bx, by):
        As = T.alloc_shared((bM, bK), T.float32)
        Bs = T.alloc_shared((bN, bK), T.float32)
        acc = T.alloc_fragment((bM, bN), T.float32)
        T.clear(acc)
        for k in T.Pipelined(T.ceildiv(K, bK), num_stages=2):
            T.copy(A[by * bM, k * bK], As)
            T.copy(B[bx * bN, k * bK], Bs)
            T.gemm(As, Bs, acc, transpose_B=True)
        T.copy(acc, C[by * bM, bx * bN])
    return C


@tilec.jit
def halves(x, scale: T.float32 = 2.0):
    N = T.dynamic("N")
    x: T.Tensor[[N], T.float32]
    up = T.empty((N,), T.float32)
    down = T.empty((N,), T.int32)
    with T.Kernel(T.ceildiv(N, 64), threads=64) as bx:
        for i in T.Parallel(64):
            up[bx * 64 + i] = x[bx * 64 + i] * scale
            down[bx * 64 + i] = T.cast(x[bx * 64 + i], T.int32)
    return up, down


@tilec.jit
def strided(x):
    M, N, S = T.const("M N S")
    x: T.StridedTensor[(M, N), (S, 1), T.float32]
    y = T.empty((M, N), T.float32)
    with T.Kernel(M, threads=64) as bx:
        for j in T.Parallel(N):
            y[bx, j] = x[bx, j] + SHIFT
    return y


@tilec.jit
def unread(x):
    N, M = T.const("N, M")
    x: T.Tensor[[N * 1, M * 2], T.float32]
    with T.Kernel(1, threads=32) as _:
        x[0, 0] = 1.0


@T.prim_func
def two_results(A: T.Tensor((8,), "float32"), B: T.Tensor((8,), "float32"), C: T.Tensor((8,), "float32")):
    with T.Kernel(1, threads=32) as _:
        for i in T.Parallel(8):
            B[i] = A[i] + 1.0
            C[i] = A[i] - 1.0


@T.prim_func
def sized(n: T.int32, A: "T.Tensor((n,), 'float32')", B: "T.Tensor((n,), 'float32')"):  # noqa: F821
    with T.Kernel(T.ceildiv(n, 64), threads=64) as bx:
        for i in T.Parallel(64):
            B[bx * 64 + i] = A[bx * 64 + i] + n


def doubled(block=32):
    """A plain factory, for AutoTuner."""

    @T.prim_func
    def main(X: T.Tensor((64,), "float32"), Y: T.Tensor((64,), "float32")):
        with T.Kernel(T.ceildiv(64, block), threads=32) as bx:
            for i in T.Parallel(block):
                Y[bx * block + i] = X[bx * block + i] * 2.0

    return main


def matrix_doubled(rows, cols, block=256, dtype="float16"):
    """Twice a matrix of these extents, T.dynamic or numbers."""

    @T.prim_func
    def main(X: T.Tensor((rows, cols), dtype), Y: T.Tensor((rows, cols), dtype)):
        with T.Kernel(T.ceildiv(cols, block), rows, threads=64) as (bx, by):
            for i in T.Parallel(block):
                Y[by, bx * block + i] = X[by, bx * block + i] * 2

    return main


def vector_doubled(count, block=1024, dtype="float16"):
    """Twice a tensor of one axis."""

    @T.prim_func
    def main(X: T.Tensor((count,), dtype), Y: T.Tensor((count,), dtype)):
        with T.Kernel(T.ceildiv(count, block), threads=64) as bx:
            for i in T.Parallel(block):
                Y[bx * block + i] = X[bx * block + i] * 2

    return main


def columns_scaled(count, rows=16, block=256, dtype="float16"):
    """Rows times a factor for each column."""

    @T.prim_func
    def main(
        X: T.Tensor((rows, count), dtype), S: T.Tensor((count,), dtype), Y: T.Tensor((rows, count), dtype)
    ):
        with T.Kernel(T.ceildiv(count, block), rows, threads=64) as (bx, by):
            for i in T.Parallel(block):
                Y[by, bx * block + i] = X[by, bx * block + i] * S[bx * block + i]

    return main
