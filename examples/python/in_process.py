"""Kernels in process: a factory and an eager kernel, on NumPy arrays, checked against NumPy.

python examples/python/in_process.py

The first run compiles; later ones find the kernels in the cache. TILEC_TARGET says what they are for: by
default the GPU of this machine, for CUDA tensors of torch, else its CPU."""

import os

import numpy as np

os.environ.setdefault("TILEC_TARGET", "cpu")  # the arrays below are NumPy's

import tilec
import tilec.language as T


@tilec.jit(out_idx=[-1])
def matmul(M, N, K, dtype="float32", bM=64, bN=64, bK=64):
    """C = A @ B for these sizes: calling it gives a kernel."""

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=128) as (bx, by):
            As = T.alloc_shared((bM, bK), dtype)
            Bs = T.alloc_shared((bK, bN), dtype)
            acc = T.alloc_fragment((bM, bN), "float32")
            T.clear(acc)
            for k in T.Pipelined(T.ceildiv(K, bK), num_stages=2):
                T.copy(A[by * bM, k * bK], As)
                T.copy(B[k * bK, bx * bN], Bs)
                T.gemm(As, Bs, acc)
            T.copy(acc, C[by * bM, bx * bN])

    return main


@tilec.jit
def shifted(X, shift: T.float32 = 1.0, block: int = 64):
    """Y = X + shift for any length: calling it with an array compiles and runs."""
    N = T.dynamic("N")
    X: T.Tensor[[N], T.float32]
    Y = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, block), threads=block) as bx:
        for i in T.Parallel(block):
            Y[bx * block + i] = X[bx * block + i] + shift
    return Y


def main() -> None:
    """Runs both and compares."""
    rng = np.random.default_rng(0)
    a, b = rng.random((100, 80), np.float32), rng.random((80, 60), np.float32)
    kernel = matmul(100, 60, 80)
    np.testing.assert_allclose(kernel(a, b), a @ b, rtol=1e-4)
    for length in (5, 1000):
        x = rng.random(length, np.float32)
        np.testing.assert_allclose(shifted(x), x + 1)
        np.testing.assert_allclose(shifted(x, 0.5), x + np.float32(0.5))
    print(f"{kernel}: right")


if __name__ == "__main__":
    main()
