"""Kernels that show what the rows of the forms mean in process."""

import torch

import tilec
import tilec.language as T


@T.prim_func
def plus_one(a: T.ptr, b: T.handle, n: T.int32):
    A = T.match_buffer(a, (n,), "float32")
    B = T.make_tensor(b, (n,), T.float32)
    with T.Kernel(T.ceildiv(n, 32), threads=32) as bx:
        for i in T.Parallel(32):
            B[bx * 32 + i] = A[bx * 32 + i] + 1


@T.prim_func
def rows_plus_one(a: T.handle, b: T.handle):
    n = T.dynamic("n")
    A = T.match_buffer(a, (n, 8), "float32")
    B = T.match_buffer(b, (n, 8), "float32")
    with T.Kernel(n, threads=32) as bx:
        for i in T.Parallel(8):
            B[bx, i] = A[bx, i] + 1


@T.prim_func
def absolute(a: T.ptr, Y: T.Tensor((32,), "float32")):
    A = T.make_tensor(a, (32,), "float32")
    bits = T.make_tensor(a, (32,), "int32")
    with T.Kernel(1, threads=32):
        for i in T.Parallel(32):
            Y[i] = T.if_then_else(bits[i] < 0, -A[i], A[i])


@tilec.jit
def tripled(p, q, n: T.int32, block: int = 32):
    p: T.ptr
    q: T.ptr
    A, B = T.make_tensor(p, (n,), T.float32), T.make_tensor(q, (n,), T.float32)
    with T.Kernel(T.ceildiv(n, block), threads=32) as bx:
        for i in T.Parallel(block):
            B[bx * block + i] = A[bx * block + i] * 3


# Constants ------------------------------------------------------------------------------------------------


@tilec.jit
def from_variables(A):
    M, N = T.const("M N")
    shape = [M, N]
    A: T.Tensor(shape, T.float32)
    C = T.empty(shape, T.float32)
    with T.Kernel(M, threads=32) as bx:
        for i in T.Parallel(N):
            C[bx, i] = A[bx, i] * 2
    return C


@tilec.jit
def by_rank(A, is_matrix: bool = True):
    if is_matrix:
        M, N = T.const("M"), T.const("N")
        A: T.Tensor[[M, N], T.float32]
        assert M > 1
    else:
        M, N = 1, T.const("N")
        A: T.Tensor[[N], T.float32]
    C = T.empty((M, N), T.float32)
    with T.Kernel(M, threads=32) as bx:
        for i in T.Parallel(N):
            C[bx, i] = A[bx, i] * 2 if is_matrix else A[i] * 2
    return C


@tilec.jit
def numbers_first(A, B):
    M, K = T.const("M, K")
    assert M % 2 == 0, "M is even"
    factor = 2.0 if M > 4 else 3.0
    term = {4: 1, 6: 2}[M]
    A: T.Tensor[[M, K], T.float32]
    B: T.Tensor[[M // 2, K * 2], T.float32]
    C = T.empty((M // 2, K), T.float32)
    with T.Kernel(M // 2, threads=32) as bx:
        for i in T.Parallel(K):
            C[bx, i] = A[2 * bx, i] * factor + B[bx, 2 * i] + term
    return C


@tilec.jit
def unused(A):
    M, _ = T.const("M K")
    A: T.StridedTensor[[M, 2], [T.dynamic("s"), 1], T.float32]
    C = T.empty((M,), T.float32)
    with T.Kernel(1, threads=32):
        for i in T.Parallel(M):
            C[i] = A[i, 0]
    return C


@tilec.jit
def indirect(A):
    M = T.const("M")
    A: T.Tensor[[M * 2], T.float32]
    C = T.empty((M,), T.float32)
    with T.Kernel(1, threads=32):
        for i in T.Parallel(M):
            C[i] = A[2 * i]
    return C


@tilec.jit
def summed(X, Y):
    N = T.const("N")
    X: T.Tensor[[N], T.float32]
    Y: T.Tensor[[N], T.float32]
    C = T.empty((N,), T.float32)
    with T.Kernel(1, threads=32):
        for i in T.Parallel(N):
            C[i] = X[i] + Y[i]
    return C


# Parameters -----------------------------------------------------------------------------------------------


@tilec.jit
def sized_by_argument(A, N):
    A: T.Tensor[[N], T.float32]
    C = T.empty((N,), T.float32)
    with T.Kernel(1, threads=32):
        for i in T.Parallel(N):
            C[i] = A[i] * 2
    return C


@tilec.jit
def sized_by_scalar(A, N):
    N: T.int32
    A: T.Tensor[[N], T.float32]
    C = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, 32), threads=32) as bx:
        for i in T.Parallel(32):
            C[bx * 32 + i] = A[bx * 32 + i] * 2
    return C


LENGTH = T.dynamic("length")


@tilec.lazy_jit
def with_signature(A: T.Tensor((LENGTH,), "float32"), s: T.float32 = 2.0, on: T.bool = True, k: T.int32 = 3):
    C = T.empty(LENGTH, dtype=T.float32)
    with T.Kernel(T.ceildiv(LENGTH, 32), threads=32) as bx:
        for i in T.Parallel(32):
            C[bx * 32 + i] = T.if_then_else(on, A[bx * 32 + i] * s + k, 0.0)
    return C


@tilec.jit
def with_options(x, options, terms=(1, 2), dt: T.dtype = T.float32):
    n = T.const("n")
    x: T.Tensor[[n], dt]
    C = T.empty((n,), dt)
    with T.Kernel(1, threads=32):
        for i in T.Parallel(n):
            C[i] = x[i] * options["factor"] + terms[1]
    return C


@tilec.jit
def outputs(A, several: bool = True):
    N = T.const("N")
    A: T.Tensor[[N], T.float32]
    a = T.empty(N, 2, dtype=T.float32)
    b = T.empty((N, 2), torch.float16)
    c = T.empty((N,), dtype="int32")
    d = T.empty(N)
    with T.Kernel(1, threads=32):
        for i in T.Parallel(N):
            d[i] = A[i]
            c[i] = T.cast(A[i], T.int32)
            for j in range(2):
                a[i, j] = A[i]
                b[i, j] = A[i]
    return (a, b, c, d) if several else [d, c, b, a]


@tilec.jit
def in_place(A):
    N = T.const("N")
    A: T.Tensor[[N], T.float32]
    body(A, N)


def body(A, N):
    """A helper: Python, not rewritten."""
    with T.Kernel(1, threads=32) as _:
        T.copy(A, tile := T.alloc_shared((N,), T.float32))
        T.fill(A, 1)
        T.copy(tile, A)


@tilec.jit
def helped(A: T.Tensor((8,), "float32")):
    body(A, 8)


@tilec.jit
def undeclared(A, B):
    N = T.const("N")
    A: T.Tensor[[N], T.float32]
    with T.Kernel(1, threads=32):
        for i in T.Parallel(N):
            A[i] = B[i]


@tilec.jit
def kinds(X: torch.Tensor, a, b: int, c: float, d: bool, e: str, f: torch.dtype, g: T.dtype, h: int = 2):
    assert (a, b, c, d, e, h) == (1, 2, 3.0, True, "x", 2)
    N = T.const("N")
    X: T.Tensor[[N], f]
    Y = T.empty((N,), g)
    with T.Kernel(1, threads=32):
        for i in T.Parallel(N):
            Y[i] = X[i] + b
    return Y


@tilec.jit
def needs_a_number(X):
    N = T.const("N")
    shape = [N] if N > 4 else [N, 1]
    X: T.Tensor[shape, T.float32]
    with T.Kernel(1, threads=32):
        T.fill(X, 1)


@tilec.jit
def packed(X):
    N = T.const("N")
    X: T.Tensor[[N], T.float4_e2m1fn]
    with T.Kernel(1, threads=32):
        T.fill(X, 1)


@tilec.jit
def by_size(X, Y, block: int = 32):
    """Y is stored the other way round for few columns: which axis M is depends on the number that N is."""
    N, M = T.const("N, M")
    X: T.Tensor[[N], T.float32]
    if N > 64:
        Y: T.Tensor[[M, N], T.float32]
    else:
        Y: T.Tensor[[N, M], T.float32]
    Z = T.empty((M, N), T.float32)
    with T.Kernel(M, threads=32) as m:
        for n in T.Parallel(N):
            if N > 64:
                Z[m, n] = Y[m, n] + X[n]
            else:
                Z[m, n] = Y[n, m] + X[n]
    return Z


@tilec.jit
def swapped(X, swap: bool = False):
    """The variables of constants change hands."""
    N, M = T.const("N, M")
    if swap:
        N, M = M, N
    X: T.Tensor[[N, M], T.float32]
    Y = T.empty((M, N), T.float32)
    with T.Kernel(N, threads=32) as n:
        for m in T.Parallel(M):
            Y[m, n] = X[n, m]
    return Y


@tilec.jit
def with_a_dim_too_many(A):
    M, _K = T.dynamic("M, K")
    A: T.Tensor[[M], T.float32]
    B = T.empty((M,), T.float32)
    with T.Kernel(T.ceildiv(M, 32), threads=32) as b:
        for i in T.Parallel(32):
            B[b * 32 + i] = A[b * 32 + i] + 1
    return B


class Offsets:
    """Factories and eager kernels that read their object."""

    def __init__(self, offset: int) -> None:
        self.offset = offset

    @tilec.jit(out_idx=[-1])
    def lazy(self, M: int):
        offset = self.offset

        @T.prim_func
        def main(A: T.Tensor((M,), "float32"), B: T.Tensor((M,), "float32")):
            with T.Kernel(1, threads=32):
                for i in T.Parallel(M):
                    B[i] = A[i] + offset

        return main

    @tilec.jit
    def eager(self, A: T.Tensor[[T.dyn], T.float32]):
        M = A.shape[0]
        B = T.empty((M,), "float32")
        with T.Kernel(T.ceildiv(M, 32), threads=32) as bx:
            for i in T.Parallel(32):
                B[bx * 32 + i] = A[bx * 32 + i] + self.offset
        return B
