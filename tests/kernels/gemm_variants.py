"""Matrix products: split, streamed, persistent, batched, gathered, quantised, with epilogues."""

from __future__ import annotations

import argparse
import itertools

import numpy as np
from family_math import wide

import tilec
import tilec.language as T
from tilec.autotuner import AutoTuner
from tilec.carver.arch import driver
from tilec.profiler import do_bench


def matmul(M, N, K, block_M=32, block_N=32, block_K=32, num_stages=3, dtype="float16", accum_dtype="float"):
    """The usual form, with swizzled layouts and panels of blocks."""

    @T.prim_func
    def gemm(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor((K, N), dtype),
        C: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            C_local = T.alloc_fragment((block_M, block_N), accum_dtype)
            T.annotate_layout(
                {
                    A_shared: tilec.layout.make_swizzled_layout(A_shared),
                    B_shared: tilec.layout.make_swizzled_layout(B_shared),
                }
            )
            T.use_swizzle(panel_size=10, enable=True)
            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                T.copy(A[by * block_M, k * block_K], A_shared)
                for i, j in T.Parallel(block_K, block_N):
                    B_shared[i, j] = B[k * block_K + i, bx * block_N + j]
                T.gemm(A_shared, B_shared, C_local)
            T.copy(C_local, C[by * block_M, bx * block_N])

    return gemm


matmul_swizzled = tilec.jit(out_idx=[-1])(matmul)


@tilec.jit
def splitk_reduce(A, B, parts: int = 4, bM: int = 32, bN: int = 32, bK: int = 32):
    """Parts of K by blocks of their own, added up by a second launch: the same bits every time."""
    M, N, K = T.const("M, N, K")
    A: T.Tensor[[M, K], T.bfloat16]
    B: T.Tensor[[N, K], T.bfloat16]
    C = T.empty([M, N], T.bfloat16)
    sums = T.alloc_global((parts, M, N), T.float32)
    steps = T.ceildiv(T.ceildiv(K, bK), parts)
    with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), parts, threads=128) as (bx, by, bz):
        As, Bs = T.alloc_shared((bM, bK), T.bfloat16), T.alloc_shared((bN, bK), T.bfloat16)
        acc = T.alloc_fragment((bM, bN), T.float32)
        T.clear(acc)
        for k in T.Pipelined(steps, num_stages=2):
            T.copy(A[by * bM, (bz * steps + k) * bK], As)
            T.copy(B[bx * bN, (bz * steps + k) * bK], Bs)
            T.gemm(As, Bs, acc, transpose_B=True)
        T.copy(acc, sums[bz, by * bM : (by + 1) * bM, bx * bN : (bx + 1) * bN])
    with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=128) as (bx, by):
        total = T.alloc_fragment((bM, bN), T.float32)
        T.clear(total)
        for p in range(parts):
            for i, j in T.Parallel(bM, bN):
                total[i, j] += sums[p, by * bM + i, bx * bN + j]
        T.copy(total, C[by * bM, bx * bN])
    return C


@tilec.jit
def streamk(M, N, K, sm_count=7, bM=32, bN=32, bK=32, num_stages=2, dtype="float16"):
    """Every block takes the same number of steps along K, whole tiles or parts; C comes zeroed."""
    tiles_n, ipt = tilec.cdiv(N, bN), tilec.cdiv(K, bK)
    total = tilec.cdiv(M, bM) * tiles_n * ipt

    @T.macro
    def compute(A_buf, B_buf, A_s, B_s, acc, tile, first, steps):
        T.clear(acc)
        for k in T.Pipelined(steps, num_stages=num_stages):
            T.copy(A_buf[tile // tiles_n * bM, (first + k) * bK], A_s)
            T.copy(B_buf[tile % tiles_n * bN, (first + k) * bK], B_s)
            T.gemm(A_s, B_s, acc, transpose_B=True)

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((N, K), dtype), C: T.Tensor((M, N), "float32")):
        with T.Kernel(sm_count, threads=128) as pid:
            A_s, B_s = T.alloc_shared((bM, bK), dtype), T.alloc_shared((bN, bK), dtype)
            acc = T.alloc_fragment((bM, bN), "float32")
            start = T.alloc_local((1,), "int32")
            start[0] = pid * total // sm_count
            last = (pid + 1) * total // sm_count
            while start[0] < last:
                tile, first = start[0] // ipt, start[0] % ipt
                steps = T.min(ipt - first, last - start[0])
                compute(A, B, A_s, B_s, acc, tile, first, steps)
                if steps == ipt:
                    T.copy(acc, C[tile // tiles_n * bM, tile % tiles_n * bN])
                else:
                    for i, j in T.Parallel(bM, bN):
                        T.atomic_add(C[tile // tiles_n * bM + i, tile % tiles_n * bN + j], acc[i, j])
                start[0] += steps

    return main


@tilec.jit(out_idx=[-1])
def persistent(M, N, K, workers=None, bM=32, bN=32, bK=32, num_stages=2, dtype="bfloat16"):
    """As many blocks as the device has multiprocessors walk the tiles."""
    if workers is None:
        workers = driver.get_num_sms()

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(workers, threads=128) as block_id:
            A_s, B_s = T.alloc_shared((bM, bK), dtype), T.alloc_shared((bK, bN), dtype)
            C_s = T.alloc_shared((bM, bN), dtype)
            acc = T.alloc_fragment((bM, bN), "float")
            for bx, by in T.Persistent([T.ceildiv(M, bM), T.ceildiv(N, bN)], workers, block_id):
                T.clear(acc)
                for k in T.Pipelined(T.ceildiv(K, bK), num_stages=num_stages):
                    T.copy(A[bx * bM, k * bK], A_s)
                    T.copy(B[k * bK, by * bN], B_s)
                    T.gemm(A_s, B_s, acc)
                T.copy(acc, C_s)
                T.copy(C_s, C[bx * bM, by * bN])

    return main


@tilec.jit(out_idx=[-1], pass_configs={tilec.PassConfigKey.TL_DISABLE_TMA_LOWER: True})
def bmm(M, N, K, trans_A=True, bM=32, bN=32, bK=32, dtype="float16"):
    """Batches, A stored (K, M); the batch is known when it is called."""
    batch = T.symbolic("batch")
    A_shape = (batch, K, M) if trans_A else (batch, M, K)

    @T.prim_func
    def main(
        A: T.Tensor(A_shape, dtype),
        B: T.Tensor((batch, K, N), dtype),
        C: T.Tensor((batch, M, N), "float32"),
    ):
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), batch, threads=128) as (bx, by, bz):
            A_s = T.alloc_shared((bK, bM) if trans_A else (bM, bK), dtype)
            B_s = T.alloc_shared((bK, bN), dtype)
            acc = T.alloc_fragment((bM, bN), "float32")
            for k in T.Pipelined(T.ceildiv(K, bK), num_stages=2):
                if trans_A:
                    T.copy(A[bz, k * bK : (k + 1) * bK, by * bM : (by + 1) * bM], A_s)
                else:
                    T.copy(A[bz, by * bM : (by + 1) * bM, k * bK : (k + 1) * bK], A_s)
                T.copy(B[bz, k * bK, bx * bN], B_s)
                T.gemm(A_s, B_s, acc, transpose_A=trans_A, clear_accum=(k == 0))
            T.copy(acc, C[bz, by * bM, bx * bN])

    return main


@tilec.jit
def gather_gemm_scatter(X, W, rows_in, rows_out, R, bM: int = 16, bN: int = 32, bK: int = 32):
    """Y[rows_out[i]] += X[rows_in[i]] W: rows picked by one list and added by another to R rows of zeros."""
    S, K, N = T.dynamic("S"), *T.const("K N")
    P = T.dynamic("P")
    R: T.int32
    X: T.Tensor[[S, K], T.float16]
    W: T.Tensor[[K, N], T.float16]
    rows_in: T.Tensor[[P], T.int32]
    rows_out: T.Tensor[[P], T.int32]
    Y = T.empty((R, N), T.float32)
    with T.Kernel(T.ceildiv(R, bM), T.ceildiv(N, bN), threads=128) as (bx, by):
        T.fill(Y[bx * bM : (bx + 1) * bM, by * bN : (by + 1) * bN], 0)
    with T.Kernel(T.ceildiv(P, bM), T.ceildiv(N, bN), threads=128) as (bx, by):
        x_s, w_s = T.alloc_shared((bM, bK), T.float16), T.alloc_shared((bK, bN), T.float16)
        source = T.alloc_shared((bM,), T.int32)
        acc = T.alloc_fragment((bM, bN), T.float32)
        for i in T.Parallel(bM):
            source[i] = rows_in[bx * bM + i] if bx * bM + i < P else -1
        T.clear(acc)
        for k in T.Pipelined(T.ceildiv(K, bK), num_stages=2):
            for i, j in T.Parallel(bM, bK):
                x_s[i, j] = T.if_then_else(source[i] >= 0, X[source[i], k * bK + j], 0)
            T.copy(W[k * bK, by * bN], w_s)
            T.gemm(x_s, w_s, acc)
        for i, j in T.Parallel(bM, bN):
            if bx * bM + i < P and by * bN + j < N:
                T.atomic_add(Y[rows_out[bx * bM + i], by * bN + j], acc[i, j])
    return Y


@tilec.jit(out_idx=[-1])
def int8_scaled(M, N, K, bM=32, bN=32, bK=64, out_dtype="bfloat16"):
    """int8 by int8 in int32, scaled per row and per column, with a bias."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), "int8"),
        B: T.Tensor((N, K), "int8"),
        a_scale: T.Tensor((M,), "float32"),
        b_scale: T.Tensor((N,), "float32"),
        bias: T.Tensor((N,), out_dtype),
        C: T.Tensor((M, N), out_dtype),
    ):
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=128) as (bx, by):
            A_s, B_s = T.alloc_shared((bM, bK), "int8"), T.alloc_shared((bN, bK), "int8")
            row, column = T.alloc_fragment((bM,), "float32"), T.alloc_fragment((bN,), "float32")
            acc, out = T.alloc_fragment((bM, bN), "int32"), T.alloc_fragment((bM, bN), out_dtype)
            T.copy(a_scale[by * bM : (by + 1) * bM], row)
            T.copy(b_scale[bx * bN : (bx + 1) * bN], column)
            T.clear(acc)
            for k in T.Pipelined(T.ceildiv(K, bK), num_stages=3):
                T.copy(A[by * bM, k * bK], A_s)
                T.copy(B[bx * bN, k * bK], B_s)
                T.gemm(A_s, B_s, acc, transpose_B=True)
            for i, j in T.Parallel(bM, bN):
                out[i, j] = T.cast(acc[i, j], "float32") * row[i] * column[j] + bias[bx * bN + j]
            T.copy(out, C[by * bM, bx * bN])

    return main


@tilec.jit(out_idx=[-1])
def fp8_two_level(M, N, K, bM=32, bN=32, bK=64, promote=2, e="e4m3"):
    """8-bit floats; sums of ``promote`` steps are added to a second accumulator."""
    dtype = T.float8_e4m3fn if e == "e4m3" else T.float8_e5m2

    @T.prim_func
    def gemm_fp8_2xAcc(
        A: T.Tensor((M, K), dtype), B: T.Tensor((N, K), dtype), C: T.Tensor((M, N), "float32")
    ):
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=128) as (bx, by):
            A_s, B_s = T.alloc_shared((bM, bK), dtype), T.alloc_shared((bN, bK), dtype)
            C_local, C_accum = (T.alloc_fragment((bM, bN), "float32") for _ in range(2))
            T.clear(C_local)
            T.clear(C_accum)
            K_iters = T.ceildiv(K, bK)
            for k in T.Pipelined(K_iters, num_stages=2):
                T.copy(A[by * bM, k * bK], A_s)
                T.copy(B[bx * bN, k * bK], B_s)
                T.gemm(A_s, B_s, C_local, transpose_B=True)
                if (k + 1) % promote == 0:
                    for i, j in T.Parallel(bM, bN):
                        C_accum[i, j] += C_local[i, j]
                    T.clear(C_local)
            if K_iters % promote != 0:
                for i, j in T.Parallel(bM, bN):
                    C_accum[i, j] += C_local[i, j]
            T.copy(C_accum, C[by * bM, bx * bN])

    return gemm_fp8_2xAcc


@tilec.jit
def strided_linear(X, W, bias, relu: bool = True, bM: int = 32, bN: int = 32, bK: int = 32):
    """Rows of X lie ``ldx`` apart; float32 in and out."""
    M, N, K, ldx = T.dynamic("M"), *T.const("N, K"), T.dynamic("ldx")
    X: T.StridedTensor[[M, K], [ldx, 1], T.float32]
    W: T.Tensor[[N, K], T.float32]
    bias: T.Tensor[[N], T.float32]
    Y = T.empty(M, N, dtype=T.float32)
    with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=128) as (bx, by):
        x_s, w_s = T.alloc_shared((bM, bK), T.float32), T.alloc_shared((bN, bK), T.float32)
        acc = T.alloc_fragment((bM, bN), T.float32)
        for i, j in T.Parallel(bM, bN):
            acc[i, j] = bias[bx * bN + j]
        for k in T.Pipelined(T.ceildiv(K, bK), num_stages=2):
            T.copy(X[by * bM, k * bK], x_s)
            T.copy(W[bx * bN, k * bK], w_s)
            T.gemm(x_s, w_s, acc, transpose_B=True)
        for i, j in T.Parallel(bM, bN):
            if relu:
                acc[i, j] = T.max(acc[i, j], 0)
        T.copy(acc, Y[by * bM, bx * bN])
    return Y


@tilec.jit
def warp_specialised(A, B, bM: int = 64, bN: int = 64, bK: int = 32):
    """One group of warps copies, the other multiplies; barriers say which buffer is full, which free."""
    M, N, K = T.const("M, N, K")
    A: T.Tensor[[M, K], T.float16]
    B: T.Tensor[[K, N], T.float16]
    C = T.empty((M, N), T.float16)
    with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=256) as (bx, by):
        A_s, B_s = T.alloc_shared((bM, bK), T.float16), T.alloc_shared((bK, bN), T.float16)
        acc = T.alloc_fragment((bM, bN), T.float32)
        full, free = T.alloc_barrier(arrive_count=128), T.alloc_barrier(arrive_count=128)
        with T.ws(1):
            T.clear(acc)
        for ko in T.serial(T.ceildiv(K, bK)):
            with T.ws(0):
                T.barrier_wait(free, (ko + 1) % 2)
                T.copy(A[by * bM, ko * bK], A_s)
                T.copy(B[ko * bK, bx * bN], B_s)
                T.barrier_arrive(full)
            with T.ws(1):
                T.barrier_wait(full, ko % 2)
                T.gemm(A_s, B_s, acc)
                T.barrier_arrive(free)
        with T.ws(1):
            T.copy(acc, C[by * bM, bx * bN])
    return C


@tilec.jit(out_idx=[-1])
def gemv_threads(N, K, BLOCK_N=4, reduce_threads=32, dtype="float16", accum_dtype="float"):
    """y = W x: a warp per row, vectors of a thread, halving sums."""
    MAX_TRANSACTION_SIZE_IN_BITS = 128
    TILE_K = MAX_TRANSACTION_SIZE_IN_BITS // tilec.DataType(dtype).bits
    BLOCK_K = reduce_threads * TILE_K

    @T.prim_func
    def main(A: T.Tensor((K,), dtype), B: T.Tensor((N, K), dtype), C: T.Tensor((N,), dtype)):
        with T.Kernel(T.ceildiv(N, BLOCK_N), threads=(BLOCK_N, reduce_threads)) as bn:
            tn = T.get_thread_binding(0)
            tk = T.get_thread_binding(1)
            A_local = T.alloc_local((TILE_K,), dtype)
            B_local = T.alloc_local((TILE_K,), dtype)
            part = T.alloc_shared((BLOCK_N, reduce_threads), accum_dtype)
            C_accum = T.alloc_local((1,), accum_dtype)
            T.clear(C_accum)
            for bk in T.serial(T.ceildiv(K, BLOCK_K)):
                for k in T.vectorized(TILE_K):
                    A_local[k] = A[bk * BLOCK_K + tk * TILE_K + k]
                    B_local[k] = B[bn * BLOCK_N + tn, bk * BLOCK_K + tk * TILE_K + k]
                for k in T.serial(TILE_K):
                    C_accum[0] += A_local[k].astype(accum_dtype) * B_local[k].astype(accum_dtype)
            part[tn, tk] = C_accum[0]
            T.sync_threads()
            for step in T.serial(5):
                if tk < (16 >> step):
                    part[tn, tk] = part[tn, tk] + part[tn, tk + (16 >> step)]
                T.sync_threads()
            if tk == 0:
                C[bn * BLOCK_N + tn] = part[tn, 0]

    return main


# ---- references and inputs ----


def matmul_swizzled_reference(A, B):
    return wide(A) @ wide(B)


def splitk_reduce_reference(A, B):
    return wide(A) @ wide(B).T


def streamk_reference(A, B, C):
    return wide(A) @ wide(B).T


def streamk_inputs(dims, rng):
    M, N, K = (dims[name] for name in "MNK")
    return [rng.standard_normal((M, K)), rng.standard_normal((N, K)), np.zeros((M, N))]


persistent_reference = warp_specialised_reference = matmul_swizzled_reference


def bmm_reference(A, B):
    return wide(A).swapaxes(1, 2) @ wide(B)


def gather_gemm_scatter_reference(X, W, rows_in, rows_out):
    out = np.zeros((int(rows_out.max()) + 1, W.shape[1]), np.float32)
    np.add.at(out, rows_out, wide(X)[rows_in] @ wide(W))
    return out


def gather_gemm_scatter_inputs(dims, rng):
    S, K, N, P, R = (dims[name] for name in ("S", "K", "N", "P", "R"))
    rows_out = rng.integers(0, R, P).astype(np.int32)
    rows_out[0] = R - 1
    rows_in = rng.integers(0, S, P).astype(np.int32)
    return [rng.standard_normal((S, K)), rng.standard_normal((K, N)), rows_in, rows_out]


def int8_scaled_reference(A, B, a_scale, b_scale, bias):
    product = A.astype(np.int32) @ B.T.astype(np.int32)
    return product * a_scale[:, None] * b_scale + wide(bias)


def int8_scaled_inputs(dims, rng):
    M, N, K = (dims[name] for name in "MNK")
    ints = [rng.integers(-127, 128, shape).astype(np.int8) for shape in ((M, K), (N, K))]
    return [
        *ints,
        *rng.uniform(0.005, 0.01, (1, M)),
        *rng.uniform(0.005, 0.01, (1, N)),
        rng.standard_normal(N),
    ]


fp8_two_level_reference = splitk_reduce_reference


def strided_linear_reference(X, W, bias):
    return np.maximum(X @ W.T + bias, 0)


def gemv_threads_reference(A, B):
    return wide(B) @ wide(A)


def get_configs():
    keys = ("block_M", "block_N", "block_K", "num_stages")
    return [dict(zip(keys, c, strict=True)) for c in itertools.product([16, 32], [32], [32], [1, 2])]


def main(argv=None):
    """The usual product beside torch, tuned without a decorator if asked."""
    import torch

    parser = argparse.ArgumentParser(description="Autotuned MatMul Benchmark")
    parser.add_argument("--m", type=int, default=128, help="Matrix dimension M")
    parser.add_argument("--n", type=int, default=96, help="Matrix dimension N")
    parser.add_argument("--k", type=int, default=160, help="Matrix dimension K")
    parser.add_argument("--tune", action="store_true")
    args = parser.parse_args(argv)
    M, N, K = args.m, args.n, args.k

    def ref_program(A, B):
        return A @ B

    if args.tune:

        def kernel(block_M=None, block_N=None, block_K=None, num_stages=None):
            return matmul(M, N, K, block_M, block_N, block_K, num_stages)

        autotuner = (
            AutoTuner.from_kernel(kernel=kernel, configs=get_configs())
            .set_compile_args(out_idx=[-1], target="auto")
            .set_profile_args(
                supply_type=tilec.TensorSupplyType.Integer, ref_prog=ref_program, skip_check=False
            )
        )
        result = autotuner.run(warmup=1, rep=3)
        print(f"best {result.latency} ms with {result.config}")
        kernel = result.kernel
    else:
        kernel = matmul_swizzled(M, N, K)
    profiler = kernel.get_profiler(tensor_supply_type=tilec.TensorSupplyType.Normal)
    profiler.assert_allclose(ref_program, atol=1e-1, rtol=1e-2)
    print("All check passed.")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    a, b = torch.randn(M, K, device=device).half(), torch.randn(K, N, device=device).half()
    print(
        do_bench(lambda: kernel(a, b), warmup=1, rep=5), "ms,", len(kernel.get_kernel_source()), "characters"
    )


if __name__ == "__main__":
    main()
