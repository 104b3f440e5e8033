"""T.gemm: operands in every memory, transposes, dtypes, sizes, regions, accumulators, arguments, errors."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from agree import TARGETS, agree, build, halves
from breadth import parametrized

import tilec.language as T
from tilec.backends.cuda.analysis.accesses.bank_conflicts import conflicts
from tilec.backends.pipeline import lower
from tilec.errors import SourceAssertionError, SourceValueError, UnsupportedError
from tilec.targets import parse_target

#: Code of both GPU targets is the same where no launch has warp roles.
GENERAL = ("cpu", "sm_80")
ALLOC = {"shared": T.alloc_shared, "fragment": T.alloc_fragment}


def operand(*shape, dtype="float16", seed=0):
    """Few small values: products and their sums are exact in every accumulator."""
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    low = 0 if kind.kind == "u" else -2
    return np.random.default_rng(seed).integers(low, 3, shape).astype(kind)


def wide(array):
    return array.astype(np.float64)


def product(
    m, n, k, dtype="float16", acc="float32", ta=False, tb=False, scopes=("shared", "shared", "fragment"),
    threads=128, policy=T.GemmWarpPolicy.Square,
):  # fmt: skip
    a_shape, b_shape = (k, m) if ta else (m, k), (n, k) if tb else (k, n)

    @T.prim_func
    def main(A: T.Tensor(a_shape, dtype), B: T.Tensor(b_shape, dtype), C: T.Tensor((m, n), acc)):
        with T.Kernel(1, threads=threads):
            a, b = ALLOC[scopes[0]](a_shape, dtype), ALLOC[scopes[1]](b_shape, dtype)
            c = ALLOC[scopes[2]]((m, n), acc)
            T.copy(A, a)
            T.copy(B, b)
            T.clear(c)
            T.gemm(a, b, c, transpose_A=ta, transpose_B=tb, policy=policy)
            T.copy(c, C)

    return main


def check(m, n, k, dtype="float16", acc="float32", ta=False, tb=False, targets=GENERAL, **options):
    a, b = operand(m, k, dtype=dtype), operand(k, n, dtype=dtype, seed=1)
    kernel = product(m, n, k, dtype, acc, ta, tb, **options)
    agree(
        kernel, a.T.copy() if ta else a, b.T.copy() if tb else b, expected=wide(a) @ wide(b), targets=targets
    )


@pytest.mark.parametrize(
    ("scopes", "ta", "tb"),
    [
        (("shared", "shared", "fragment"), True, True),
        (("fragment", "shared", "fragment"), False, True),
        (("fragment", "shared", "fragment"), True, False),
        (("shared", "fragment", "fragment"), True, False),
        (("fragment", "fragment", "fragment"), False, True),
        (("shared", "shared", "shared"), False, False),
    ],
)
def test_operands_in_every_memory(scopes, ta, tb):
    check(32, 32, 32, scopes=scopes, ta=ta, tb=tb)


DTYPES = [
    ("bfloat16", "float32"),
    ("float16", "float16"),
    ("float32", "float32"),
    ("float64", "float64"),
    ("float8_e4m3fn", "float32"),
    ("int8", "int32"),
]
FURTHER = [
    ("float16", "float32"),
    ("float8_e5m2", "float32"),
    ("float8_e4m3fn", "float16"),
    ("float8_e5m2", "float16"),
    ("uint8", "int32"),
]


@parametrized(("dtype", "acc"), DTYPES + FURTHER, fast=DTYPES)
def test_every_pair_of_dtypes(dtype, acc):
    check(64, 16, 32, dtype, acc, tb=True, targets=TARGETS)


@pytest.mark.parametrize(
    ("m", "n", "k", "dtype"),
    [(17, 8, 16, "float16"), (33, 20, 13, "float16"), (1, 64, 8, "float32"), (17, 5, 13, "int8")],
)
def test_sizes_that_are_no_multiples_of_an_instruction(m, n, k, dtype):
    check(m, n, k, dtype, "int32" if dtype == "int8" else "float32")


@pytest.mark.parametrize(
    ("m", "n", "k", "ta", "tb"),
    [
        (64, 32, 16, False, False),
        (32, 64, 8, True, True),
        (64, 64, 32, True, False),
        (17, 20, 13, False, True),
    ],
)
def test_products_of_float64(m, n, k, ta, tb):
    check(m, n, k, "float64", "float64", ta, tb, targets=TARGETS)


@pytest.mark.parametrize(("target", "instruction"), [("sm_80", "m8n8k4"), ("sm_90a", "m16n8k4")])
def test_float64_has_tensor_cores_and_no_conflicts(target, instruction):
    found = lower(build(product(64, 64, 16, "float64", "float64")), parse_target(target)).launches[0]
    assert [road.instruction for road in found.roads if road.kind == "mma.sync"] == [
        f"mma.sync {instruction}"
    ]
    assert not conflicts(found)


@pytest.mark.parametrize("threads", [32, 96, 256])
def test_any_number_of_warps(threads):
    check(64, 64, 16, threads=threads)


@pytest.mark.parametrize("policy", list(T.GemmWarpPolicy))
def test_policies_change_no_result(policy):
    check(64, 32, 16, policy=policy)


def test_stages_and_regions_of_shared_tiles_and_a_run_time_clear():
    @T.prim_func
    def main(
        A: T.Tensor((3, 32, 32), "float16"), B: T.Tensor((3, 32, 32), "float16"),
        C: T.Tensor((32, 32), "float32"),
    ):  # fmt: skip
        with T.Kernel(1, threads=128):
            a, b = T.alloc_shared((3, 32, 32), "float16"), T.alloc_shared((3, 32, 32), "float16")
            c = T.alloc_fragment((32, 32), "float32")
            T.copy(A, a)
            T.copy(B, b)
            for s in T.serial(3):
                T.gemm(a[s, :, :], b[s, :, :], c, transpose_B=True, clear_accum=s == 0)
            T.gemm(a[0, :, 16:32], b[0, 0:16, :], c)
            T.copy(c, C)

    a, b = operand(3, 32, 32), operand(3, 32, 32, seed=1)
    x, y = wide(a), wide(b)
    agree(main, a, b, expected=sum(x[s] @ y[s].T for s in range(3)) + x[0, :, 16:] @ y[0, :16])


def test_parts_of_an_accumulator_and_products_of_other_shapes():
    @T.prim_func
    def main(
        A: T.Tensor((64, 32), "float16"), B: T.Tensor((32, 64), "float16"), C: T.Tensor((64, 64), "float32")
    ):
        with T.Kernel(1, threads=128):
            a, b = T.alloc_shared((64, 32), "float16"), T.alloc_shared((32, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.clear(c)
            T.gemm(a[0:32, :], b[:, 0:32], c[0:32, 0:32])
            T.gemm(a[0:32, :], b[:, 32:64], c[0:32, 32:64])
            T.gemm(a[32:64, 0:16], b[0:16, :], c[32:64, :])
            T.gemm(a[32:64, 16:32], b[16:32, :], c[32:64, :])
            T.copy(c, C)

    a, b = operand(64, 32), operand(32, 64, seed=1)
    agree(main, a, b, expected=wide(a) @ wide(b))
    roads = lower(build(main), parse_target("sm_80"), until="infer_layouts").launches[0].roads
    assert any("products of different shapes add to c" in str(road) for road in roads)


def test_several_products_into_one_accumulator_and_one_into_another():
    @T.prim_func
    def main(
        A: T.Tensor((32, 32), "float16"), B: T.Tensor((32, 64), "float16"), C: T.Tensor((32, 64), "float32"),
        D: T.Tensor((32, 64), "float32"),
    ):  # fmt: skip
        with T.Kernel(1, threads=128):
            a, b = T.alloc_shared((32, 32), "float16"), T.alloc_shared((32, 64), "float16")
            c, d = T.alloc_fragment((32, 64), "float32"), T.alloc_fragment((32, 64), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.clear(c)
            T.gemm(a, b, c, policy=T.GemmWarpPolicy.FullRow)
            T.gemm(a, b, d, True, False, T.GemmWarpPolicy.Square, True, 1)
            T.gemm_v2(a, b, c, policy=T.GemmWarpPolicy.FullCol)
            T.gemm_v1(a, b, d, transpose_A=True, k_pack=2, wg_wait=-1)
            T.wait_wgmma(0)
            T.copy(c, C)
            T.copy(d, D)

    a, b = operand(32, 32), operand(32, 64, seed=1)
    agree(main, a, b, expected=[2 * wide(a) @ wide(b), 2 * wide(a).T @ wide(b)])


@pytest.mark.parametrize("n", [0, 1, 2])
def test_a_product_under_a_condition(n):
    @T.prim_func
    def main(A: T.Tensor((32, 32), "float16"), n: T.int32, C: T.Tensor((32, 32), "float32")):
        with T.Kernel(1, threads=128):
            a, c = T.alloc_shared((32, 32), "float16"), T.alloc_fragment((32, 32), "float32")
            T.copy(A, a)
            T.fill(c, 3)
            if n > 0:
                T.gemm(a, a, c, clear_accum=n == 1)
            T.copy(c, C)

    a = operand(32, 32)
    x = wide(a) @ wide(a)
    agree(main, a, n, expected=[np.full((32, 32), 3), x, x + 3][n])


def test_a_product_of_a_product_and_its_transpose():
    """As in attention and its gradient: P as first operand in registers, transposed through shared memory."""

    @T.prim_func
    def main(
        Q: T.Tensor((64, 32), "float16"), K: T.Tensor((64, 32), "float16"), V: T.Tensor((64, 32), "float16"),
        R: T.Tensor((64, 32), "float32"), G: T.Tensor((64, 32), "float32"), S: T.Tensor((64, 64), "float32"),
    ):  # fmt: skip
        with T.Kernel(1, threads=128):
            q, k, v = (T.alloc_shared((64, 32), "float16") for _ in range(3))
            s, p = T.alloc_fragment((64, 64), "float32"), T.alloc_fragment((64, 64), "float16")
            o, g = T.alloc_fragment((64, 32), "float32"), T.alloc_fragment((64, 32), "float32")
            ps, t = T.alloc_shared((64, 64), "float16"), T.alloc_fragment((64, 64), "float32")
            T.copy(Q, q)
            T.copy(K, k)
            T.copy(V, v)
            T.gemm(q, k, s, transpose_B=True, clear_accum=True, policy=T.GemmWarpPolicy.FullRow)
            T.copy(s, p)
            T.gemm(p, v, o, clear_accum=True, policy=T.GemmWarpPolicy.FullRow)
            T.copy(p, ps)
            T.gemm(ps, v, g, transpose_A=True, clear_accum=True)
            for i, j in T.Parallel(64, 64):
                t[i, j] = s[i, j] + s[j, i]
            T.copy(o, R)
            T.copy(g, G)
            T.copy(t, S)

    q, k, v = (operand(64, 32, seed=seed) for seed in range(3))
    s = wide(q) @ wide(k).T
    agree(main, q, k, v, expected=[s @ wide(v), s.T @ wide(v), s + s.T])


def test_views_are_operands():
    @T.prim_func
    def main(
        A: T.Tensor((16, 64), "float16"), B: T.Tensor((32, 32), "float16"), C: T.Tensor((1024,), "float32")
    ):
        with T.Kernel(1, threads=64):
            a, b = T.alloc_shared((16, 64), "float16"), T.alloc_shared((32, 32), "float16")
            c = T.alloc_fragment((1024,), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.clear(c)
            T.gemm(T.reshape(a, (32, 32)), b, T.view(c, (32, 32)))
            T.copy(c, C)

    a, b = operand(16, 64), operand(32, 32, seed=1)
    agree(main, a, b, expected=(wide(a).reshape(32, 32) @ wide(b)).reshape(-1))


def wrong(a=(16, 16), b=(16, 16), c=(16, 16), dtypes=("float16", "float16", "float32"), **options):
    @T.prim_func
    def main(X: T.Tensor((4,), "float32")):
        with T.Kernel(1, threads=32):
            tiles = (
                T.alloc_shared(a, dtypes[0]),
                T.alloc_shared(b, dtypes[1]),
                T.alloc_fragment(c, dtypes[2]),
            )
            for tile in tiles:
                T.clear(tile)
            T.gemm(*tiles, **options)

    return main


@pytest.mark.parametrize(
    ("kernel", "kind", "match"),
    [
        (wrong(a=(16, 8)), SourceAssertionError, "axis K is 8 in .* and 16 in"),
        (wrong(a=(8, 16)), SourceAssertionError, "axis M is 8 in .* and 16 in"),
        (wrong(b=(16, 8)), SourceAssertionError, "axis N is 8 in .* and 16 in"),
        (wrong(b=(8, 16), transpose_B=True), SourceAssertionError, "axis N is 8 in .* and 16 in"),
        (wrong(a=(2, 16, 16)), SourceAssertionError, "after leading ones of 1"),
        (wrong(dtypes=("float16", "bfloat16", "float32")), SourceValueError, "float16 and .* is bfloat16"),
        (wrong(dtypes=("float8_e4m3fn", "float8_e5m2", "float32")), SourceValueError, "float8_e5m2"),
        (wrong(dtypes=("float16", "float16", "int32")), UnsupportedError, "float16 into int32"),
        (wrong(mbar=object()), UnsupportedError, "mbar"),
    ],
)
def test_wrong_products_name_the_axis_and_the_line(kernel, kind, match):
    with pytest.raises(kind, match=match) as caught:
        build(kernel)
    assert caught.value.place.file == __file__
    assert caught.value.remedy


def test_an_operand_in_global_memory_is_an_error():
    @T.prim_func
    def main(A: T.Tensor((16, 16), "float16")):
        with T.Kernel(1, threads=32):
            c = T.alloc_fragment((16, 16), "float32")
            T.clear(c)
            T.gemm(A, A, c)

    with pytest.raises(AssertionError, match="A is in global memory") as caught:
        build(main)
    assert caught.value.remedy.startswith("T.copy it to a tile")


@pytest.mark.parametrize("when", ["always", "at first"])
def test_a_product_that_clears_sums_in_shared_memory_does_not_read_them(when):
    """The emulator refuses a read of shared memory that nothing has written."""

    @T.prim_func
    def main(
        A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float32")
    ):
        with T.Kernel(1, threads=128):
            a, b = T.alloc_shared((64, 32), "float16"), T.alloc_shared((64, 32), "float16")
            c = T.alloc_shared((64, 64), "float32")
            for k in T.Pipelined(2, num_stages=2):
                T.copy(A[0, k * 32], a)
                T.copy(B[0, k * 32], b)
                T.gemm(a, b, c, transpose_B=True, clear_accum=when == "always" or k == 0)
            T.copy(c, C)

    a, b = (np.random.default_rng(n).integers(-3, 4, (64, 64)).astype("float16") for n in (1, 2))
    first = 32 if when == "always" else 0
    agree(main, a, b, expected=(a[:, first:].astype("float32") @ b[:, first:].astype("float32").T))


def test_columns_that_are_no_whole_instruction():
    """On gfx1100 registers of the columns behind the last hold the same 0 in all lanes."""

    @T.prim_func
    def main(B: T.Tensor((16, 1), "float16"), C: T.Tensor((4, 1), "float32")):
        with T.Kernel(1, threads=64):
            a, b = T.alloc_shared((4, 16), "float16"), T.alloc_shared((16, 1), "float16")
            sums = T.alloc_fragment((4, 1), "float32")
            T.clear(sums)
            T.fill(a, 1)
            T.copy(B, b)
            T.gemm(a, b, sums)
            T.copy(sums, C)

    agree(main, np.arange(16, dtype=np.float16)[:, None], targets=("gfx1100", "gfx942"))


@pytest.mark.parametrize("columns", [32, 96])
def test_columns_that_fill_no_slab_of_an_operand_whose_rows_begin_anywhere(columns):
    n, k, dtype = T.dynamic("n"), T.dynamic("k"), "bfloat16"

    @T.prim_func
    def main(A: T.Tensor((1, k), dtype), B: T.Tensor((k, n), dtype), C: T.Tensor((1, n), "float32")):
        with T.Kernel(T.ceildiv(n, columns), threads=256) as bx:
            a, b = T.alloc_shared((128, 64), dtype), T.alloc_shared((64, columns), dtype)
            c = T.alloc_fragment((128, columns), "float32")
            T.clear(c)
            for t in T.Pipelined(T.ceildiv(k, 64), num_stages=2):
                T.copy(A[0, t * 64], a)
                T.copy(B[t * 64, bx * columns], b)
                T.gemm(a, b, c)
            T.copy(c, C[0, bx * columns])

    a, b = operand(1, 131, dtype=dtype), operand(131, 115, dtype=dtype, seed=1)
    agree(main, a, b, expected=wide(a) @ wide(b), targets=("sm_90a",))


def wide_tiles(columns, dtype, acc):
    @T.prim_func
    def main(
        A: T.Tensor((40, 64), dtype), B: T.Tensor((64, columns), dtype), C: T.Tensor((40, columns), acc)
    ):
        with T.Kernel(1, threads=128):
            a, b = T.alloc_shared((64, 32), dtype), T.alloc_shared((32, 64), dtype)
            c = T.alloc_fragment((64, 64), acc)
            T.clear(c)
            for k in T.serial(2):
                T.copy(A[0, k * 32], a)
                T.copy(B[k * 32, 0], b)
                T.gemm(a, b, c)
            T.copy(c, C[0, 0])

    return main


@pytest.mark.parametrize("columns", [1, 20])
@pytest.mark.parametrize(("dtype", "acc"), [("int8", "int32"), ("bfloat16", "float32")])
def test_tiles_of_more_columns_than_a_tensor_whose_products_are_by_words(columns, dtype, acc):
    """Instructions on words have no vectors as narrow as what is left."""
    a, b = operand(40, 64, dtype=dtype), operand(64, columns, dtype=dtype, seed=1)
    agree(wide_tiles(columns, dtype, acc), a, b, expected=wide(a) @ wide(b), targets=("cpu",))


def one_trip(depth, dtype, acc, least):
    @T.prim_func
    def main(A: T.Tensor((9, depth), dtype), B: T.Tensor((depth, 32), dtype), C: T.Tensor((9, 32), acc)):
        with T.Kernel(1, threads=128):
            a, b = T.alloc_shared((16, 8), dtype), T.alloc_shared((8, 32), dtype)
            c = T.alloc_fragment((16, 32), acc)
            T.clear(c)
            for _ in T.serial(T.ceildiv(depth, 8)):
                T.copy(A[0, 0], a)
                T.copy(B[0, 0], b)
                if least is not None:
                    for i, k in T.Parallel(16, 8):
                        a[i, k] = T.max(a[i, k], least)
                T.gemm(a, b, c)
            T.copy(c, C[0, 0])

    return main


def test_words_of_a_row_end_with_the_row():
    """Nothing of the next row comes in, not even times zero."""
    a, b = operand(9, 5, dtype="bfloat16"), operand(5, 32, dtype="bfloat16", seed=1)
    a[1, 0], a[4, 0] = np.inf, np.nan
    b = np.maximum(b, np.array(1, b.dtype))
    agree(one_trip(5, "bfloat16", "float32", None), a, b, expected=wide(a) @ wide(b), targets=("cpu",))


def test_what_a_tile_has_behind_k_counts_as_often_as_it_is_taken_off():
    a, b = operand(9, 6, dtype="int8"), operand(6, 32, dtype="int8", seed=1)
    wanted = wide(np.maximum(a, 1)) @ wide(b)
    agree(one_trip(6, "int8", "int32", 1), a, b, expected=wanted, targets=("cpu",))


@pytest.mark.parametrize(
    ("rows", "columns", "clears"), [(4, 8, True), (4, 8, False), (8, 3, True), (None, 8, False)]
)
def test_sums_that_the_operands_lack_are_zero(rows, columns, clears):
    """Tensors that end inside of the tile, of results that do not; ``rows`` None: at run time."""
    have = T.dynamic("have") if rows is None else rows

    @T.prim_func
    def main(
        A: T.Tensor((have, 8), "float32"),
        B: T.Tensor((8, columns), "float32"),
        C: T.Tensor((8, 8), "float32"),
    ):
        with T.Kernel(1, threads=32):
            a, b = T.alloc_shared((8, 8), "float32"), T.alloc_shared((8, 8), "float32")
            c = T.alloc_fragment((8, 8), "float32")
            T.copy(A[0, 0], a)
            T.copy(B[0, 0], b)
            if not clears:
                T.clear(c)
            T.gemm(a, b, c, clear_accum=clears)
            for i, j in T.Parallel(8, 8):
                C[i, j] = c[i, j] + 1

    a, b = operand(rows or 5, 8, dtype="float32"), operand(8, columns, dtype="float32", seed=1)
    wanted = np.pad(a @ b, ((0, 8 - len(a)), (0, 8 - columns))) + 1
    agree(main, a, b, expected=wanted, targets=GENERAL)


def test_halves_added_to_halves_over_a_depth_of_the_run_time():
    """Steps of K that become one product read no operand in place that has to be widened first."""
    columns = 16

    @T.prim_func
    def kernel(
        A: T.Tensor((T.dynamic("K"), T.dynamic("M")), "float16"),
        B: T.Tensor((T.dynamic("K"), columns), "float16"),
        C: T.Tensor((T.dynamic("M"), columns), "float32"),
    ):
        K, M = A.shape
        with T.Kernel(T.ceildiv(M, 13), threads=128) as by:
            As, Bs = T.alloc_shared((16, 13), "float16"), T.alloc_shared((16, 20), "float16")
            acc = T.alloc_fragment((13, 20), "float16")
            T.clear(acc)
            for _ in T.serial(2):
                for ko in T.serial(T.ceildiv(K, 16)):
                    T.copy(A[ko * 16, by * 13], As)
                    T.copy(B[ko * 16, 0], Bs)
                    T.gemm(As, Bs, acc, transpose_A=True)
            T.copy(acc, C[by * 13, 0])

    a, b = halves(41, 37, most=2), halves(41, columns, seed=1, most=2)
    agree(kernel, a, b, expected=2 * (a.T.astype(np.float32) @ b.astype(np.float32)))
