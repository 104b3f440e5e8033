"""A product with a sparse first operand, and operands for it."""

from __future__ import annotations

import torch

import tilec.language as T
from tilec.ir.interp.values import numpy_dtype
from tilec.layout import make_cutlass_metadata_layout
from tilec.utils import sparse

BITS = {"uint8": 8, "int16": 16, "int32": 32}


def product(m, n, k, dtype, places, sums, turned=(False, False, False), tiles=(32, 32, 64), threads=64):
    """C = A B with A as values and their places; ``turned``: A, E and B stored the other way round."""
    ta, te, tb = turned
    bm, bn, bk = tiles
    bits = BITS[places]

    def shape(rows, columns, other):
        return (columns, rows) if other else (rows, columns)

    @T.prim_func
    def main(
        A: T.Tensor(shape(m, k // 2, ta), dtype),
        E: T.Tensor(shape(m, k // bits, te), places),
        B: T.Tensor(shape(k, n, tb), dtype),
        C: T.Tensor((m, n), sums),
    ):
        with T.Kernel(T.ceildiv(n, bn), T.ceildiv(m, bm), threads=threads) as (bx, by):
            a = T.alloc_shared(shape(bm, bk // 2, ta), dtype)
            e = T.alloc_shared(shape(bm, bk // bits, te), places)
            b = T.alloc_shared(shape(bk, bn, tb), dtype)
            c = T.alloc_fragment((bm, bn), sums)
            T.annotate_layout({e: make_cutlass_metadata_layout(e, mma_dtype=dtype, block_k=bk)})
            T.clear(c)
            for ko in T.Pipelined(T.ceildiv(k, bk), num_stages=2):
                if ta:
                    T.copy(A[ko * bk // 2, by * bm], a)
                else:
                    T.copy(A[by * bm, ko * bk // 2], a)
                if te:
                    T.copy(E[ko * bk // bits, by * bm], e)
                else:
                    T.copy(E[by * bm, ko * bk // bits], e)
                if tb:
                    T.copy(B[bx * bn, ko * bk], b)
                else:
                    T.copy(B[ko * bk, bx * bn], b)
                T.gemm_sp(a, e, b, c, transpose_A=ta, transpose_E=te, transpose_B=tb)
            T.copy(c, C[by * bm, bx * bn])

    return main


def operands(m, n, k, dtype, places, seed=0):
    """Values, places, B and the product, all with their rows first."""
    torch.manual_seed(seed)
    low = 0 if dtype == "uint8" else -3
    dense = sparse.randint_semi_sparse(m, k, low, 4, dtype="int8", device="cpu")
    values, words = sparse.torch_compress(dense.half())
    b = torch.randint(low, 4, (k, n), dtype=torch.int8)
    wanted = dense.float() @ b.float()
    words = words.contiguous().view(getattr(torch, places))
    kind = numpy_dtype(dtype)
    return values.numpy().astype(kind), words.numpy(), b.numpy().astype(kind), wanted.numpy()
