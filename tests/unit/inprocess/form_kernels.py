"""Kernels that show what the rows of the forms mean in process."""

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
