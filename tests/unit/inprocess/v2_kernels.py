"""Kernels of the second style: sizes and dtypes come with the arguments."""

import torch

import tilec.language.v2 as tl

_N = tl.dyn[int, "_N"]


@tl.jit
def scale(A: tl.Tensor[int, int], factor: tl.dyn[float], block: int = 32):
    M, N = A.shape
    C = tl.empty(M, N, dtype=A.dtype)
    with tl.Kernel(M, tl.ceildiv(N, block), threads=32) as (bx, by):
        for i in tl.Parallel(block):
            C[bx, by * block + i] = A[bx, by * block + i] * factor
    return C


@tl.jit
def add(X: tl.Tensor[_N], Y: tl.Tensor[_N], n: tl.dyn):
    C = tl.empty(X.shape[0], dtype=X.dtype)
    with tl.Kernel(tl.ceildiv(X.shape[0], 32), threads=32) as bx:
        for i in tl.Parallel(32):
            C[bx * 32 + i] = X[bx * 32 + i] + Y[bx * 32 + i] + n
    return C


@tl.jit
def matmul(
    A: tl.Tensor[int, int],
    B: tl.Tensor[int, int],
    out_dtype: torch.dtype = torch.float32,
    bM: int = 32,
    bN: int = 32,
    bK: int = 32,
):
    M, K, dtype = A.params()
    K, N = B.shape_params()
    C = tl.empty((M, N), out_dtype)
    with tl.Kernel(tl.ceildiv(N, bN), tl.ceildiv(M, bM), threads=128) as (bx, by):
        As, Bs = tl.alloc_shared((bM, bK), dtype), tl.alloc_shared((bK, bN), dtype)
        acc = tl.alloc_fragment((bM, bN), "float32")
        tl.clear(acc)
        for k in tl.Pipelined(tl.ceildiv(K, bK), num_stages=2):
            tl.copy(A[by * bM, k * bK], As)
            tl.copy(B[k * bK, bx * bN], Bs)
            tl.gemm(As, Bs, acc)
        tl.copy(acc, C[by * bM, bx * bN])
    return C


@tl.jit
def plus_one(A: tl.StridedTensor[(int, int), (tl.dyn, tl.dyn)]):
    M, N = A.shape_params()
    C = tl.empty((M, N), A.dtype)
    with tl.Kernel(M, threads=32) as bx:
        for i in tl.Parallel(N):
            C[bx, i] = A[bx, i] + 1
    return C


@tl.jit
def rows(A: tl.Tensor[tl.dyn, int], B: tl.Tensor[tl.dyn[int], int]):
    M, N = A.shape_params()
    M, _ = B.shape_params()
    C = tl.empty((M, N), A.dtype)
    with tl.Kernel(M, threads=32) as bx:
        for i in tl.Parallel(N):
            C[bx, i] = A[bx, i] + B[bx, 0]
    return C


@tl.jit
def doubled(p: tl.ptr, M: int, flag: bool, dt: torch.dtype):
    C = tl.empty(M, dtype=dt)
    A = tl.make_tensor(p, (M,), dtype=dt)
    with tl.Kernel(1, threads=32):
        for i in tl.Parallel(M):
            C[i] = A[i] * 2 if flag else A[i]
    return C


@tl.jit(pass_configs={"tl.disable_tma_lower": True})
def hinted(A: tl.Tensor[int], fast: bool = True):
    tl.set_pass_configs({"tl.enable_fast_math": fast})
    tl.add_compile_flags(["-O3"] if fast else [])
    N = A.shape[0]
    part = tl.alloc_global((N, 2), A.dtype)
    C = tl.empty(N, dtype=A.dtype)
    with tl.Kernel(1, threads=32):
        for i in tl.Parallel(N):
            part[i, 0] = A[i]
    with tl.Kernel(1, threads=32):
        for i in tl.Parallel(N):
            C[i] = part[i, 0]
    return C
