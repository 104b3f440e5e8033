"""Products on clusters of blocks: tiles that neighbours bring for each other, clusters of 2, 2x2 and 4, and
parts of a sum that meet in the shared memory of one block. Only sm_90a has clusters."""

from __future__ import annotations

from family_math import wide

import tilec
import tilec.language as T

HALF = "float16"


@tilec.jit(out_idx=[-1])
def multicast_pair(M, N, K, bM=128, bN=128, bK=64, num_stages=4, dtype=HALF):
    """Two blocks of a row of tiles share the tile of A."""

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=256, cluster_dims=2) as (bx, by):
            As, Bs = T.alloc_shared((bM, bK), dtype), T.alloc_shared((bK, bN), dtype)
            acc = T.alloc_fragment((bM, bN), "float32")
            T.clear(acc)
            for k in T.Pipelined(T.ceildiv(K, bK), num_stages=num_stages):
                T.copy_cluster(A[by * bM, k * bK], As, cluster_mask=0b11)
                T.copy(B[k * bK, bx * bN], Bs)
                T.gemm(As, Bs, acc)
            T.copy(acc, C[by * bM, bx * bN])

    return main


@tilec.jit(out_idx=[-1])
def multicast_2x2(M, N, K, bM=128, bN=128, bK=64, num_stages=3, dtype="bfloat16"):
    """Four blocks: those of a row share A, those of a column share B."""

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((N, K), dtype), C: T.Tensor((M, N), dtype)):
        with T.ClusterKernel(T.ceildiv(N, bN), T.ceildiv(M, bM), cluster_dims=(2, 2, 1), threads=256) as (
            bx,
            by,
        ):
            As, Bs = T.alloc_shared((bM, bK), dtype), T.alloc_shared((bN, bK), dtype)
            acc, Cs = T.alloc_fragment((bM, bN), "float32"), T.alloc_shared((bM, bN), dtype)
            rank = T.block_rank_in_cluster()
            T.clear(acc)
            for k in T.Pipelined(T.ceildiv(K, bK), num_stages=num_stages):
                if rank < 2:
                    T.copy_cluster(A[by * bM, k * bK], As, cluster_mask=0b0011)
                else:
                    T.copy_cluster(A[by * bM, k * bK], As, cluster_mask=0b1100)
                if rank % 2 == 0:
                    T.copy_cluster(B[bx * bN, k * bK], Bs, cluster_mask=0b0101)
                else:
                    T.copy_cluster(B[bx * bN, k * bK], Bs, cluster_mask=0b1010)
                T.gemm(As, Bs, acc, transpose_B=True)
            T.copy(acc, Cs)
            T.copy(Cs, C[by * bM, bx * bN])

    return main


@tilec.jit(out_idx=[-1])
def cluster_of_4(M, N, K, bM=128, bN=256, bK=64, num_stages=4, dtype=HALF):
    """Four blocks of a column of tiles share B; copies are plain, the cluster is all that the author says."""

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(M, bM), T.ceildiv(N, bN), threads=256, cluster_dims=(4, 1, 1)) as (bx, by):
            As, Bs = T.alloc_shared((bM, bK), dtype), T.alloc_shared((bK, bN), dtype)
            acc = T.alloc_fragment((bM, bN), "float32")
            T.clear(acc)
            for k in T.Pipelined(T.ceildiv(K, bK), num_stages=num_stages):
                T.copy(A[bx * bM, k * bK], As)
                T.copy(B[k * bK, by * bN], Bs)
                T.gemm(As, Bs, acc)
            T.copy(acc, C[bx * bM, by * bN])

    return main


@tilec.jit(out_idx=[-1])
def cluster_split_k(M, N, K, bM=128, bN=128, bK=64, num_stages=4, dtype=HALF):
    """Two blocks have half of K each; the second hands its sums to the shared memory of the first. K of whole
    pairs of tiles."""

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(2, T.ceildiv(N, bN), T.ceildiv(M, bM), threads=256, cluster_dims=2) as (part, bx, by):
            As, Bs = T.alloc_shared((bM, bK), dtype), T.alloc_shared((bK, bN), dtype)
            acc = T.alloc_fragment((bM, bN), "float32")
            own, theirs = T.alloc_shared((bM, bN), "float32"), T.alloc_shared((bM, bN), "float32")
            come = T.alloc_cluster_barrier([1])
            trips = T.ceildiv(K, 2 * bK)
            T.clear(acc)
            for k in T.Pipelined(trips, num_stages=num_stages):
                T.copy(A[by * bM, (part * trips + k) * bK], As)
                T.copy(B[(part * trips + k) * bK, bx * bN], Bs)
                T.gemm(As, Bs, acc)
            if part == 1:
                T.copy(acc, own)
                T.copy_cluster(own, theirs, dst_block=0, remote_barrier=come[0])
            else:
                T.mbarrier_wait_parity(come[0], 0)
                for i, j in T.Parallel(bM, bN):
                    acc[i, j] += theirs[i, j]
                T.copy(acc, C[by * bM, bx * bN])
            T.cluster_sync()

    return main


# ---- references ----


def product_reference(A, B):
    return wide(A) @ wide(B)


def product_nt_reference(A, B):
    return wide(A) @ wide(B).T
