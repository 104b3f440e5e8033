"""Every form that a manifest may name."""

import tilec
import tilec.language as T
import tilec.language.v2 as tl

ROWS, COLUMNS = T.dynamic("rows, columns")


@T.prim_func
def described(X: T.Tensor((ROWS, COLUMNS), "float32"), Y: T.Tensor((ROWS, COLUMNS), "float32")):
    with T.Kernel(ROWS, threads=32) as bx:
        for j in T.Parallel(COLUMNS):
            Y[bx, j] = X[bx, j] + 1


def plain(N, block=32, term=2.0):
    """A factory without a decorator."""

    @T.prim_func
    def main(X: T.Tensor((N,), "float32"), Y: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, block), threads=32) as bx:
            for i in T.Parallel(block):
                Y[bx * block + i] = X[bx * block + i] + term

    return main


def blocks(N):
    return [{"block": 16, "pass_configs": {"tl.disable_tma_lower": True}}, {"block": N}]


@tilec.autotune(configs=blocks)
@tilec.jit(out_idx=[-1])
def tuned(N, block, term=3.0):
    return plain(N, block, term)


class Kernels:
    @tilec.autotune(configs={"block": [8, 16], "term": [4.0]})
    @tilec.jit
    def added(X, n, block: int, term: float = 1.0, dtype: T.dtype = T.float32):
        M = T.const("M")
        n: T.int32
        X: T.Tensor[[M, n], dtype]
        Y = T.empty((M, n), dtype)
        with T.Kernel(M, T.ceildiv(n, block), threads=32) as (bx, by):
            for j in T.Parallel(block):
                Y[bx, by * block + j] = X[bx, by * block + j] + term
        return Y


@tl.jit
def open_sizes(
    X: tl.Tensor[int, tl.dyn],
    Z: tl.StridedTensor[(int,), (tl.dyn[int, "step"],)],  # noqa: F821
    block: int = 32,
):
    M, N = X.shape_params()
    Y = tl.empty((M, N), X.dtype)
    with tl.Kernel(M, tl.ceildiv(N, block), threads=32) as (bx, by):
        for j in tl.Parallel(block):
            Y[bx, by * block + j] = X[bx, by * block + j] + Z[bx]
    return Y


@tilec.jit
def asks_the_device(X, wide: bool = False):
    import torch

    N = T.const("N")
    X: T.Tensor[[N], T.float32]
    capability = torch.cuda.get_device_capability()
    block = 64 if wide and capability >= (9, 0) else 32
    with T.Kernel(T.ceildiv(N, block), threads=32) as bx:
        for i in T.Parallel(block):
            X[bx * block + i] = 1.0


def needs_a_number(N):
    @T.prim_func
    def main(X: T.Tensor((N,), "float32")):
        with T.Kernel(1, threads=32):
            for i in list(range(N)):
                X[i] = 1.0

    return main


@T.prim_func
def at_addresses(x: T.ptr, y: T.handle, n: T.int32):
    X, Y = T.match_buffer(x, (n,), "float32"), T.make_tensor(y, (n,), "float32")
    with T.Kernel(T.ceildiv(n, 32), threads=32) as bx:
        for i in T.Parallel(32):
            Y[bx * 32 + i] = X[bx * 32 + i] * 2
