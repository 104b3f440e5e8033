"""Products of tiles whose K, or whose rows, are no whole steps of an instruction."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, elaborated, halves, numbers, roads

import tilec.language as T
from tilec.backends.cuda.emit.entry import lower_kernel
from tilec.backends.pipeline import lower
from tilec.targets import parse_target


def weighted(width, fill="copy", heads=1):
    """Rows of scores that select rows of values, ``heads`` of ``width`` side by side in a row; the queries
    are held in a fragment where ``fill`` says so."""
    row = heads * width

    @T.prim_func
    def main(Q: T.Tensor((70, row), "float16"), K: T.Tensor((100, row), "float16"),
             V: T.Tensor((100, row), "float16"), Y: T.Tensor((70, row), "float16")):  # fmt: skip
        with T.Kernel(T.ceildiv(70, 64), heads, threads=128) as (bx, by):
            q, k, v = (T.alloc_shared((64, width), "float16") for _ in range(3))
            s, o = T.alloc_fragment((64, 64), "float32"), T.alloc_fragment((64, width), "float32")
            p, held = T.alloc_fragment((64, 64), "float16"), T.alloc_fragment((64, width), "float16")
            T.copy(Q[bx * 64, by * width], q)
            if fill == "held":
                T.copy(q, held)
            T.clear(o)
            for t in T.Pipelined(2, num_stages=2):
                if fill != "loop":
                    T.copy(K[t * 64, by * width], k)
                else:
                    for i, j in T.Parallel(64, width):
                        k[i, j] = K[t * 64 + i, by * width + j] * 2
                T.gemm(held if fill == "held" else q, k, s, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(64, 64):
                    p[i, j] = T.if_then_else(s[i, j] > 4, 1, 0)
                T.copy(V[t * 64, by * width], v)
                T.gemm(p, v, o)
            T.copy(o, q)
            T.copy(q, Y[bx * 64, by * width])

    return main


@pytest.mark.parametrize(
    ("width", "fill", "heads"),
    [(40, "copy", 1), (72, "loop", 1), (72, "held", 1), (40, "held", 2), (72, "copy", 3)],
)
def test_heads_of_no_whole_steps_are_multiplied_in_place(width, fill, heads):
    given = [halves(rows, heads * width, seed=seed, most=3) for seed, rows in enumerate((70, 100, 100))]
    agree(weighted(width, fill, heads), *given)
    for target, instruction in (("sm_80", "mma.sync"), ("sm_90a", "wgmma")):
        found = roads(weighted(width, fill, heads), *given, target=target)
        products = [road for road in found if instruction in road.instruction]
        assert len(products) == 2
        assert not any(road.loss for road in products)
        assert not any("fitted" in str(road) for road in found)


def test_a_tile_in_the_middle_of_a_row_gets_no_zeros():
    """The row goes on behind the second tile: it is not tiles alone."""

    @T.prim_func
    def main(A: T.Tensor((64, 152), "float16"), B: T.Tensor((64, 152), "float16"),
             C: T.Tensor((64, 64), "float32")):  # fmt: skip
        with T.Kernel(1, threads=128):
            a, b = T.alloc_shared((64, 72), "float16"), T.alloc_shared((64, 72), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.clear(c)
            for t in T.Pipelined(2, num_stages=2):
                T.copy(A[0, t * 72], a)
                T.copy(B[0, t * 72], b)
                T.gemm(a, b, c, transpose_B=True)
            T.copy(c, C)

    given = halves(64, 152, most=3), halves(64, 152, seed=1, most=3)
    agree(main, *given)
    chip = parse_target("sm_80")
    (launch,) = lower_kernel(lower(elaborated(main, given, None, {}, {}), chip), chip).launches
    assert not any("zeros behind its end" in note for note in launch.notes)


@pytest.mark.parametrize("rank", [8, 24])
def test_a_tile_that_threads_make_has_zeros_behind_it(rank):
    @T.prim_func
    def main(X: T.Tensor((64, 64), "float16"), A: T.Tensor((rank, 64), "float16"),
             B: T.Tensor((64, rank), "float16"), Y: T.Tensor((64, 64), "float32")):  # fmt: skip
        with T.Kernel(1, threads=128):
            x, a = T.alloc_shared((64, 64), "float16"), T.alloc_shared((rank, 64), "float16")
            b, made = T.alloc_shared((64, rank), "float16"), T.alloc_shared((64, rank), "float16")
            h, y = T.alloc_fragment((64, rank), "float32"), T.alloc_fragment((64, 64), "float32")
            T.copy(X, x)
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(x, a, h, transpose_B=True, clear_accum=True)
            T.copy(h, made)
            T.gemm(made, b, y, transpose_B=True, clear_accum=True)
            T.copy(y, Y)

    given = halves(64, 64, most=3), halves(rank, 64, seed=1, most=3), halves(64, rank, seed=2, most=3)
    agree(main, *given)
    for target in ("sm_80", "sm_90a"):
        assert not any("fitted" in str(road) for road in roads(main, *given, target=target))


@pytest.mark.parametrize("rank", [8, 40])
@pytest.mark.parametrize("form", ["held", "variable"])
def test_a_tile_that_threads_make_in_a_loop_has_zeros_behind_it(form, rank):
    """Of a fragment, or of elements at a place that a variable of the threads tells."""

    @T.prim_func
    def main(A: T.Tensor((128, rank), "float16"), B: T.Tensor((64, rank), "float16"),
             Y: T.Tensor((64, 64), "float32")):  # fmt: skip
        with T.Kernel(1, threads=128):
            a, b = T.alloc_shared((64, rank), "float16"), T.alloc_shared((64, rank), "float16")
            held, y = T.alloc_fragment((64, rank), "float16"), T.alloc_fragment((64, 64), "float32")
            row = T.alloc_var("int32", 0)
            T.copy(B, b)
            T.clear(y)
            for k in T.serial(2):
                if form == "held":
                    T.copy(A[k * 64, 0], held)
                    T.copy(held, a)
                else:
                    for i, j in T.Parallel(64, rank):
                        a[i, j] = A[row + i, j]
                T.gemm(a, b, y, transpose_B=True)
                row += 64
            T.copy(y, Y)

    agree(main, halves(128, rank, most=3), halves(64, rank, seed=1, most=3))


def test_what_is_stored_behind_the_end_of_a_tile_is_no_part_of_products():
    @T.prim_func
    def main(A: T.Tensor((64, 40), "float16"), B: T.Tensor((64, 40), "float16"), at: T.int32,
             C: T.Tensor((64, 64), "float32")):  # fmt: skip
        with T.Kernel(1, threads=128):
            a, b = T.alloc_shared((64, 40), "float16"), T.alloc_shared((64, 40), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.copy(A, a)
            T.copy(B, b)
            for i in T.Parallel(64):
                a[i, at] = a[i, 0] + 1
                b[i, at] = b[i, 0] + 1
            T.gemm(a, b, c, transpose_B=True, clear_accum=True)
            T.copy(c, C)

    for at in (3, 41, 47):
        agree(main, halves(64, 40, most=3), halves(64, 40, seed=1, most=3), at)


def test_operands_that_threads_make_in_a_loop_have_zeros_behind_them():
    @T.prim_func
    def main(Q: T.Tensor((128, 40), "float16"), S: T.Tensor((40, 40), "float16"),
             Y: T.Tensor((128, 40), "float32")):  # fmt: skip
        with T.Kernel(1, threads=64):
            q, s = T.alloc_shared((64, 40), "float16"), T.alloc_shared((40, 40), "float16")
            state, o = T.alloc_fragment((40, 40), "float32"), T.alloc_fragment((64, 40), "float32")
            T.copy(S, state)
            for t in T.serial(2):
                T.copy(Q[t * 64, 0], q)
                T.copy(state, s)
                T.gemm(q, s, o, transpose_B=True, clear_accum=True)
                T.copy(o, Y[t * 64, 0])

    rng = np.random.default_rng(7)
    q, s = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((128, 40), (40, 40)))
    agree(main, q, s, expected=q.astype(np.float32) @ s.astype(np.float32).T)


@pytest.mark.parametrize(
    ("dtype", "sums", "threads"),
    [("float16", "float32", 96), ("float16", "float16", 64), ("int8", "int32", 64)],
)
def test_sums_in_shared_memory_that_the_first_trip_clears(dtype, sums, threads):
    """Nothing has written them before, and nothing reads them before."""

    @T.prim_func
    def main(A: T.Tensor((64, 64), dtype), B: T.Tensor((64, 24), dtype), C: T.Tensor((64, 24), sums)):
        with T.Kernel(2, threads=threads) as bx:
            a, b = T.alloc_shared((32, 16), dtype), T.alloc_shared((16, 24), dtype)
            c = T.alloc_shared((32, 24), sums)
            for k in T.Pipelined(4, num_stages=2):
                T.copy(A[bx * 32, k * 16], a)
                T.copy(B[k * 16, 0], b)
                T.gemm(a, b, c, clear_accum=k == 0)
                for i, j in T.Parallel(32, 24):
                    c[i, j] = -c[i, j]
            T.copy(c, C[bx * 32, 0])

    a, b = numbers(64, 64, dtype="int8") % 3, numbers(64, 24, dtype="int8", seed=1) % 3
    found = np.zeros((64, 24), "int32")
    for k in range(0, 64, 16):
        found = -(found + a[:, k : k + 16].astype("int32") @ b[k : k + 16])
    agree(main, a, b, expected=found, targets=("cpu", "sm_80", "sm_90a", "gfx942"))
