"""Kernels that the checks compile in process."""

import tilec
import tilec.language as T


@tilec.jit(out_idx=[-1])
def matmul(M, N, K, bM=128, bN=128, bK=64, num_stages=3, dtype="float16"):
    """C = A @ B.T."""

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((N, K), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=128) as (bx, by):
            As = T.alloc_shared((bM, bK), dtype)
            Bs = T.alloc_shared((bN, bK), dtype)
            acc = T.alloc_fragment((bM, bN), "float32")
            T.clear(acc)
            for k in T.Pipelined(T.ceildiv(K, bK), num_stages=num_stages):
                T.copy(A[by * bM, k * bK], As)
                T.copy(B[bx * bN, k * bK], Bs)
                T.gemm(As, Bs, acc, transpose_B=True)
            T.copy(acc, C[by * bM, bx * bN])

    return main


def matmul_reference(A, B):
    """What the manifest's kernel should give."""
    return A.astype("float32") @ B.astype("float32").T


@tilec.jit
def scale(X, factor: T.float32 = 2.0, block: int = 256):
    """An eager kernel: Y = factor * X."""
    N = T.const("N")
    X: T.Tensor[[N], T.float32]
    Y = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
        for i in T.Parallel(block):
            Y[bx * block + i] = factor * X[bx * block + i]
    return Y


@tilec.jit(out_idx=[-1])
def softmax(M, N, dtype="float32"):
    """Softmax of rows."""

    @T.prim_func
    def main(X: T.Tensor((M, N), dtype), Y: T.Tensor((M, N), dtype)):
        with T.Kernel(M, threads=128) as row:
            x = T.alloc_fragment((1, N), "float32")
            largest = T.alloc_fragment((1,), "float32")
            total = T.alloc_fragment((1,), "float32")
            T.copy(X[row, 0], x)
            T.reduce_max(x, largest, dim=1)
            for i, j in T.Parallel(1, N):
                x[i, j] = T.exp(x[i, j] - largest[i])
            T.reduce_sum(x, total, dim=1)
            for i, j in T.Parallel(1, N):
                x[i, j] = x[i, j] / total[i]
            T.copy(x, Y[row, 0])

    return main
