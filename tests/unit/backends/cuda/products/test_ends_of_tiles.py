"""Results of tiles of which some elements alone are stored: what whole tiles take of the tests for others."""

from __future__ import annotations

from itertools import groupby

import tilec.language as T
from tilec.backends.cuda.codegen import images as cuda
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.ir.guards import Guard
from tilec.language.frontend.elaborate import elaborate
from tilec.targets import parse_target

SM90A = parse_target("sm_90a")
OPEN = {"M": Guard(), "N": Guard(div=8), "K": Guard(div=8)}
PAIRS = 64  # of a thread's sums in a tile of 128 x 128


def source(out: str, ragged: bool = False, adds: bool = False, scales: bool = False) -> str:
    """CUDA C++ of a product whose rows are stored up to the ``n``-th one, or added to those a table names, or
    whose columns have factors."""

    def factory(M, N, K):
        @T.prim_func
        def kernel(
            A: T.Tensor((M, K), "float16"),
            B: T.Tensor((N, K), "float16"),
            rows: T.Tensor((M,), "int32"),
            factors: T.Tensor((N,), "float32"),
            n: T.int32,
            C: T.Tensor((M, N), out),
        ):
            with T.Kernel(T.ceildiv(N, 128), T.ceildiv(M, 128), threads=256) as (bx, by):
                left, right = (T.alloc_shared((128, 64), "float16") for _ in range(2))
                acc = T.alloc_fragment((128, 128), "float32")
                T.clear(acc)
                for k in T.Pipelined(T.ceildiv(K, 64), num_stages=3):
                    T.copy(A[by * 128, k * 64], left)
                    T.copy(B[bx * 128, k * 64], right)
                    T.gemm(left, right, acc, transpose_B=True)
                for i, j in T.Parallel(128, 128):
                    if by * 128 + i < n if ragged else True:
                        if adds:
                            T.atomic_add(C[rows[by * 128 + i], bx * 128 + j], acc[i, j])
                        elif scales:
                            C[by * 128 + i, bx * 128 + j] = acc[i, j] * factors[bx * 128 + j]
                        else:
                            C[by * 128 + i, bx * 128 + j] = acc[i, j]

        return kernel

    kernel = elaborate(factory, name="product", dims=OPEN, args={}, config={})
    return cuda.source(to_tir(lower(kernel, SM90A), SM90A), SM90A, "product")


def of_whole_tiles(text: str) -> str:
    """The lines of the last branch for whole tiles: that of those who store."""
    start = text.rindex("\n", 0, text.rindex("if (whole")) + 1
    lines = text[start:].splitlines()
    indent = len(lines[0]) - len(lines[0].lstrip())
    stop = next(n for n, line in enumerate(lines[1:], 1) if len(line) - len(line.lstrip()) <= indent)
    return "\n".join(lines[1:stop])


def test_rows_of_ragged_tiles_leave_the_staging_buffer_in_vectors():
    text = source("float16", ragged=True)
    assert text.count("cp_async_bulk_tensor_s2g") == 1 + 4  # its definition, and four chunks of columns
    assert "tvm_builtin_ptx_st_vec_global_v4_b32" in text
    assert "tvm_builtin_ptx_st_global_b32" not in text


def test_pairs_of_whole_columns_are_stored_behind_one_test_of_each_row():
    text = source("float32")
    whole = of_whole_tiles(text)
    assert whole.count("st_vec_global_v2_f32") == PAIRS
    assert whole.count("if (") == whole.count("if (row_leaves") == 4
    assert text.count("tvm_builtin_ptx_st_vec_global_v2_f32((&") == 2 * PAIRS


def test_factors_of_eight_pairs_are_loaded_before_the_first_is_stored():
    """A load behind a store waits for its turn."""
    lines = of_whole_tiles(source("float32", scales=True)).splitlines()
    kinds = [
        "fetch" if "tilec_fetch_8((" in line else "store"
        for line in lines
        if "tilec_fetch_8((" in line or "st_vec_global_v2_f32((" in line
    ]
    assert [(kind, len(list(run))) for kind, run in groupby(kinds)] == [("fetch", 8), ("store", 8)] * (
        PAIRS // 8
    )


def test_a_row_that_a_table_names_is_tested_once():
    text = source("float32", ragged=True, adds=True)
    whole = of_whole_tiles(text)
    assert whole.count("tilec_add_float32x2(") == PAIRS
    assert whole.count("if (row_leaves") == 4
