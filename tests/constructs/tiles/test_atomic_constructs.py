"""Atomic updates: of elements and tiles, in global and shared memory, for every dtype, order and target."""

from __future__ import annotations

import ctypes

import ml_dtypes
import numpy as np
import pytest
from agree import agree, build, elaborated, roads
from linked import link

import tilec.language as T
from tilec.backends.cuda.codegen import images as cuda
from tilec.backends.cuda.device.atomics import SWAP_BYTE, SWAP_BYTE_CODE
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.emulate import EmulatedKernel
from tilec.errors import EmulationError, SourceValueError
from tilec.ir.guards import Guard
from tilec.targets import parse_target


def numbers(*shape, dtype="float32", seed=0):
    """Small numbers, so that sums are exact in any order."""
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    low = 0 if kind.kind == "u" else -8
    return np.random.default_rng(seed).integers(low, 9, shape).astype(kind)


def updates(dtype, memory):
    @T.prim_func
    def main(A: T.Tensor((64,), dtype), B: T.Tensor((3, 4), dtype)):
        with T.Kernel(2, threads=32) as bx:
            if memory == "global":
                for i in T.Parallel(32):
                    v = A[bx * 32 + i]
                    T.atomic_add(B[0, i % 4], v)
                    T.atomic_max(B[1, i % 4], v)
                    T.atomic_min(B[2, i % 4], v)
            else:
                s = T.alloc_shared((3, 4), dtype)
                T.clear(s)
                for i in T.Parallel(32):
                    v = A[bx * 32 + i]
                    T.atomic_add(s[0, i % 4], v)
                    T.atomic_max(s[1, i % 4], v)
                    T.atomic_min(s[2, i % 4], v)
                T.atomic_add(B, s)

    return main


WIDE = ("int32", "uint32", "int64", "uint64", "float16", "bfloat16", "float32", "float64")


@pytest.mark.parametrize("dtype", WIDE)
def test_elements_of_every_dtype_in_global_memory(dtype):
    a, b = numbers(64, dtype=dtype), numbers(3, 4, dtype=dtype, seed=1)
    x = np.concatenate([a.reshape(16, 4).astype(np.float64), np.zeros((1, 4))])
    rows = [np.concatenate([x[:16], b[row][None].astype(np.float64)]) for row in range(3)]
    wanted = np.stack([rows[0].sum(0), rows[1].max(0), rows[2].min(0)])
    agree(updates(dtype, "global"), a, b, expected=wanted, targets=("cpu", "sm_80"))


@pytest.mark.parametrize("dtype", ["int64", "float16", "float32"])
def test_elements_in_shared_memory_and_the_tile_added_to_a_tensor(dtype):
    a, b = numbers(64, dtype=dtype), numbers(3, 4, dtype=dtype, seed=1)
    halves = a.reshape(2, 8, 4).astype(np.float64)
    parts = [np.stack([h.sum(0), np.maximum(h.max(0), 0), np.minimum(h.min(0), 0)]) for h in halves]
    agree(updates(dtype, "shared"), a, b, expected=b.astype(np.float64) + parts[0] + parts[1])


def test_elements_of_fragments_that_several_iterations_update():
    @T.prim_func
    def main(
        A: T.Tensor((12, 40), "float16"), L: T.Tensor((12,), "int32"), B: T.Tensor((40,), "float32"),
        C: T.Tensor((12,), "float16"), D: T.Tensor((7,), "int32"), E: T.Tensor((12, 40), "int32"),
    ):  # fmt: skip
        with T.Kernel(1, threads=64):
            sums, top = T.alloc_fragment((40,), "float32"), T.alloc_fragment((12,), "float16")
            bins, own = T.alloc_fragment((7,), "int32"), T.alloc_fragment((12, 40), "int32")
            T.fill(sums, 1)
            T.fill(top, -3)
            T.fill(bins, 9)
            T.fill(own, 5)
            for i, j in T.Parallel(12, 40):
                T.atomic_add(sums[j], A[i, j])
                if j < L[i]:
                    T.atomic_max(top[i], A[i, j])
                    T.atomic_min(bins[(i + j) % 7], T.cast(A[i, j], "int32"))
                E[i, j] = T.atomic_add(own[i, j], j, return_prev=True) + own[i, j]
            T.copy(sums, B)
            T.copy(top, C)
            T.copy(bins, D)

    a, last = numbers(12, 40, dtype="float16"), np.arange(12, dtype=np.int32) * 3
    kept = np.arange(40) < last[:, None]
    top = np.maximum(np.where(kept, a, -3).max(1), -3)
    place = np.add.outer(np.arange(12), np.arange(40)) % 7
    bins = [min(9, int(a[kept & (place == at)].min())) for at in range(7)]
    own = np.broadcast_to(10 + np.arange(40), (12, 40))
    agree(main, a, last, expected=[a.astype(np.float32).sum(0) + 1, top, np.array(bins), own])


def test_an_element_of_a_fragment_added_to_one_of_a_tensor_by_one_thread():
    @T.prim_func
    def main(A: T.Tensor((64,), "int32"), B: T.Tensor((2,), "int32")):
        with T.Kernel(1, threads=64):
            f = T.alloc_fragment((64,), "int32")
            T.copy(A, f)
            tx = T.get_thread_binding()
            if tx == 0:
                T.atomic_add(B[1], f[17])

    a = numbers(64, dtype="int32")
    agree(main, a, np.array([3, 4], "int32"), expected=np.array([3, 4 + a[17]]), targets=("sm_80", "sm_90a"))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_elements_of_a_fragment_as_they_are_added_to_neighbours_at_once(dtype):
    @T.prim_func
    def main(A: T.Tensor((32, 8), dtype), B: T.Tensor((8,), dtype)):
        with T.Kernel(2, threads=32) as bx:
            f = T.alloc_fragment((16, 8), dtype)
            T.copy(A[bx * 16, 0], f)
            for i, j in T.Parallel(16, 8):
                f[i, j] = f[i, j] * f[i, j]
            for i, j in T.Parallel(16, 8):
                T.atomic_add(B[j], f[i, j])

    a = np.random.default_rng(2).integers(-2, 3, (32, 8)).astype(getattr(ml_dtypes, dtype, dtype))
    wanted = (a.astype(np.float32) ** 2).sum(0) + 1
    agree(main, a, np.ones(8, a.dtype), expected=wanted.astype(a.dtype))


def test_extremes_of_short_integers_and_bits_of_wide_ones():
    @T.prim_func
    def main(
        A: T.Tensor((32,), "int16"),
        S: T.Tensor((2,), "int16"),
        B: T.Tensor((32,), "int64"),
        W: T.Tensor((2,), "int64"),
        U: T.Tensor((2,), "uint32"),
    ):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(32):
                T.atomic_max(S[i % 2], A[i])
                T.atomic_or(W[i % 2], B[i])
                T.atomic_or(U[i % 2], T.cast(B[i], "uint32"))

    a, b = numbers(32, dtype="int16"), numbers(32, dtype="int64") + 8
    s, w, u = (np.array([-3, 2], "int16"), np.array([1 << 40, 2], "int64"), np.zeros(2, "uint32"))
    bits = np.bitwise_or.reduce(b.reshape(16, 2), axis=0)
    agree(main, a, s, b, w, u, expected=[np.maximum(a.reshape(16, 2).max(0), s), bits | w, bits])


@pytest.mark.parametrize("order", ["relaxed", "consume", "acquire", "release", "acq_rel", "seq_cst"])
def test_memory_orders_change_no_result(order):
    @T.prim_func
    def main(A: T.Tensor((32,), "float32"), B: T.Tensor((4,), "float32"), C: T.Tensor((4,), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(32):
                T.atomic_add(B[i % 4], A[i], memory_order=order)
                T.atomic_max(C[i % 4], A[i], order)

    a, b = numbers(32), numbers(4, seed=1)
    x = a.reshape(8, 4)
    agree(main, a, b, b, expected=[x.sum(0) + b, np.maximum(x.max(0), b)], targets=("cpu", "sm_80"))


def test_the_old_value_is_every_value_on_the_way():
    @T.prim_func
    def main(A: T.Tensor((64,), "int32"), N: T.Tensor((4,), "int32"), Seen: T.Tensor((4, 16), "int32")):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(64):
                before = T.atomic_add(N[A[i]], 1, return_prev=True)
                Seen[A[i], before] = 1

    agree(main, np.arange(64, dtype=np.int32) % 4, np.zeros(4, np.int32),
          expected=[np.full(4, 16), np.ones((4, 16))])  # fmt: skip


def test_loads_and_stores_in_one_piece():
    @T.prim_func
    def main(
        A: T.Tensor((32,), "int32"),
        H: T.Tensor((32,), "float16"),
        B: T.Tensor((32,), "int32"),
        G: T.Tensor((32,), "float16"),
        F: T.Tensor((2,), "float32"),
    ):
        with T.Kernel(1, threads=32):
            s = T.alloc_shared((32,), "int32")
            for i in T.Parallel(32):
                T.atomic_store(s[i], T.atomic_load(A[i]) + 1, memory_order="relaxed")
            for i in T.Parallel(32):
                T.atomic_store(B[i], T.atomic_load(s[31 - i], memory_order="acquire"))
                T.atomic_store(G[i], T.atomic_load(H[i], memory_order="relaxed"), memory_order="release")
            first = T.atomic_load(H[0], memory_order="consume")
            T.atomic_store(F[0], first)
            F[1] = T.atomic_load(A[3])

    a, h = numbers(32, dtype="int32"), numbers(32, dtype="float16")
    agree(main, a, h, expected=[(a + 1)[::-1], h, np.array([h[0], a[3]], np.float32)])


def test_a_condition_of_while_loads_anew_before_each_trip():
    @T.prim_func
    def main(N: T.Tensor((1,), "int32"), B: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=32):
            T.clear(B)
            while T.atomic_load(N[0]) < 8:
                B[T.atomic_load(N[0])] = N[0] * 2
                N[0] = T.atomic_load(N[0]) + 1

    agree(main, np.array([2], np.int32), targets=("cpu",),
          expected=[[8], np.array([0, 0, 4, 6, 8, 10, 12, 14])])  # fmt: skip


def test_tiles_meet_as_in_copies_and_end_where_the_tensor_does():
    @T.prim_func
    def main(
        A: T.Tensor((10, 12), "float32"),
        B: T.Tensor((10, 12), "float16"),
        D: T.Tensor((2, 10, 12), "float32"),
        E: T.Tensor((8, 12), "float32"),
    ):
        with T.Kernel(2, threads=64) as bx:
            f, s = T.alloc_fragment((8, 12), "float32"), T.alloc_shared((8, 12), "float32")
            T.copy(A[bx * 8, 0], f)
            T.copy(A[bx * 8, 0], s)
            T.atomic_add(B[bx * 8, 0], f)
            T.atomic_add(D[1, bx * 8, 0], s, use_tma=True)
            T.atomic_max(D[0, 0:4, :], f[4:8, :])
            if bx == 0:
                T.atomic_add(s, f)
                T.atomic_min(s[0:2, :], 1)
                T.atomic_add(E, s, memory_order="release")

    a, b, d, e = numbers(10, 12), numbers(10, 12, dtype="float16"), numbers(2, 10, 12), numbers(8, 12)
    wanted = d.copy()
    wanted[1] += a
    wanted[0, :4] = np.maximum(np.maximum(d[0, :4], a[4:8]), 0)
    s = 2 * a[:8]
    s[:2] = np.minimum(s[:2], 1)
    agree(main, a, b, d, e, expected=[a + b, wanted, e + s])


def test_pairs_and_quads_and_variables_as_places():
    @T.prim_func
    def main(
        H: T.Tensor((16,), "float16"),
        G: T.Tensor((16,), "float16"),
        F: T.Tensor((16,), "float32"),
        X: T.Tensor((16,), "float32"),
        S: T.Tensor((1,), "float32"),
    ):
        with T.Kernel(1, threads=32):
            total = T.alloc_fragment((1,), "float32")
            T.clear(total)
            for i in T.Parallel(8):
                T.atomic_addx2(G[i * 2], H[i * 2])
                T.atomic_addx2(X[i * 2], F[i * 2])
            for i in T.Parallel(4):
                T.atomic_addx4(X[i * 4], F[i * 4])
            for i in T.Parallel(16):
                total[0] += F[i]
            T.atomic_add(S, total)

    h, g, f, x = numbers(16, dtype="float16"), numbers(16, dtype="float16", seed=1), numbers(16), numbers(16)
    agree(main, h, g, f, x, np.ones(1, np.float32), expected=[h + g, x + 2 * f, [f.sum() + 1]])


def added_in_pairs(width):
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float32"), n: T.int32, B: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            s = T.alloc_shared((64, 64), "float32")
            T.copy(A, s)
            for i, j in T.Parallel(64, 64 // width):
                column = j * width
                if i < n:
                    if width == 2:
                        T.atomic_addx2(B[i, column], s[i, column])
                    else:
                        T.atomic_addx4(B[i, column], s[i, column])

    return main


@pytest.mark.parametrize("width", [2, 4])
def test_pairs_and_quads_of_whole_rows_are_added_side_by_side(width):
    a, b = numbers(64, 64), numbers(64, 64, seed=1)
    agree(added_in_pairs(width), a, 50, b, expected=b + np.where(np.arange(64)[:, None] < 50, a, 0))
    (adding,) = [
        road for road in roads(added_in_pairs(width), a, 50, b, target="sm_90a") if "B" in road.statement
    ]
    assert (adding.kind, adding.loss) == ("vectors", None)


def test_data_decides_the_place_and_what_lies_outside_is_dropped():
    @T.prim_func
    def main(A: T.Tensor((64,), "int32"), At: T.Tensor((64,), "int32"), B: T.Tensor((10,), "int32")):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(64):
                if A[i] != 3:
                    T.atomic_add(B[At[i]], A[i] * 1.5)

    a, at = numbers(64, dtype="int32"), np.random.default_rng(3).integers(-2, 13, 64).astype(np.int32)
    wanted = np.zeros(10, np.int32)
    for value, place in zip(a, at, strict=True):
        if 0 <= place < 10 and value != 3:
            wanted[place] += int(value * 1.5)
    agree(main, a, at, np.zeros(10, np.int32), expected=wanted)


def element(use, dtype="float32"):
    @T.prim_func
    def main(C: T.Tensor((4, 4), dtype)):
        with T.Kernel(1, threads=32):
            tile = T.alloc_shared((4, 4), dtype)
            T.clear(tile)
            for i in T.Parallel(4):
                use(C, tile, i)

    return main


@pytest.mark.parametrize(
    ("use", "dtype", "match"),
    [
        (lambda C, t, i: T.atomic_add(C[i, 0], 1, memory_order="weak"), "float32", "'weak' does not exist"),
        (
            lambda C, t, i: T.atomic_load(C[i, 0], memory_order="release"),
            "float32",
            "'release' does not exist",
        ),
        (lambda C, t, i: T.atomic_store(C[i, 0], 1, memory_order="acquire"), "float32", "'acquire' does not"),
        (lambda C, t, i: T.atomic_load(C), "float32", "takes one element"),
        (lambda C, t, i: T.atomic_add(C[i, 0], 1), "int8", "C is int8"),
        (lambda C, t, i: T.atomic_or(C[i, 0], 1), "float32", "C is float32"),
        (lambda C, t, i: T.atomic_addx4(C[i, 0], t[i, 0]), "float16", "addx4 of float16"),
    ],
)
def test_wrong_updates_name_the_line(use, dtype, match):
    with pytest.raises(SourceValueError, match=match) as caught:
        build(element(use, dtype))
    assert caught.value.place.file == __file__


def test_a_tile_has_no_old_values():
    @T.prim_func
    def main(C: T.Tensor((4, 4), "float32")):
        with T.Kernel(1, threads=32):
            tile = T.alloc_shared((4, 4), "float32")
            T.clear(tile)
            T.atomic_add(C, tile, return_prev=True)

    with pytest.raises(NotImplementedError, match="returns no previous values"):
        build(main)


def test_a_run_time_size_bounds_what_is_updated():
    n = T.dynamic("n")

    @T.prim_func
    def main(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, 16), threads=32) as bx:
            f = T.alloc_fragment((16,), "float32")
            T.copy(A[bx * 16], f)
            T.atomic_add(B[bx * 16], f)

    a, b = numbers(37), numbers(37, seed=1)
    agree(main, a, b, dims={"n": Guard()}, expected=a + b)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_8_bit_elements_leave_their_neighbours_alone(dtype):
    """Places before and behind the tensor are dropped; five elements end inside of a word."""

    @T.prim_func
    def main(
        A: T.Tensor((64,), dtype),
        At: T.Tensor((64,), "int32"),
        B: T.Tensor((5,), dtype),
        C: T.Tensor((5,), dtype),
    ):
        with T.Kernel(2, threads=32) as bx:
            for i in T.Parallel(32):
                T.atomic_max(B[At[bx * 32 + i]], A[bx * 32 + i], memory_order="acq_rel")
                T.atomic_min(C[At[bx * 32 + i]], A[bx * 32 + i])

    draw = np.random.default_rng(0)
    kind = np.dtype(dtype)
    a = draw.integers(np.iinfo(kind).min, np.iinfo(kind).max, 64, endpoint=True).astype(kind)
    at = draw.integers(-3, 9, 64).astype(np.int32)
    b, c = np.full(5, 3, kind), np.full(5, 3, kind)
    most, least = b.copy(), c.copy()
    for value, place in zip(a, at, strict=True):
        if 0 <= place < 5:
            most[place], least[place] = max(most[place], value), min(least[place], value)
    agree(main, a, at, b, c, expected=[most, least])
    gpu = parse_target("sm_80")
    lowered = to_tir(lower(elaborated(main, (), {}, {}, {}), gpu), gpu)
    assert cuda.source(lowered, gpu, "k").count("tilec_swap_byte(void* at") == 1
    assert cuda.compile_kernel(lowered, gpu, "k").code


def _summed_by_the_last(order):
    """Sums of blocks, added up by the one that comes last; its counter is left at 0."""

    @T.prim_func
    def main(X: T.Tensor((4, 64), "float32"), Count: T.Tensor((1,), "int32"), Y: T.Tensor((1,), "float32")):
        Sums = T.alloc_global((4,), "float32")
        with T.Kernel(4, threads=64) as block:
            x, total = T.alloc_fragment((64,), "float32"), T.alloc_fragment((1,), "float32")
            came = T.alloc_shared((1,), "int32")
            tx = T.get_thread_binding()
            T.copy(X[block, :], x)
            T.reduce_sum(x, total)
            Sums[block] = total[0]
            T.sync_threads()
            if tx == 0:
                came[0] = T.atomic_add(Count[0], 1, memory_order=order, return_prev=True)
            T.sync_threads()
            if came[0] == 3 and tx == 0:
                Y[0] = Sums[0] + Sums[1] + Sums[2] + Sums[3]
                Count[0] = 0

    return main


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "gfx942"])
def test_the_last_block_reads_what_others_wrote(target):
    x, count = np.arange(256, dtype=np.float32).reshape(4, 64), np.zeros(1, np.int32)
    expected = [count, x.sum(keepdims=True)[0]]
    agree(_summed_by_the_last("acq_rel"), x, count, expected=expected, targets=(target,))
    relaxed = elaborated(_summed_by_the_last("relaxed"), (x, count), None, {}, {})
    run = EmulatedKernel(relaxed, parse_target(target))
    with pytest.raises(EmulationError, match="bytes 0 to 3 of Sums, which another block has written"):
        run([x, count, np.zeros(1, np.float32)], {})


def _added_in_turn(order):
    """Each block reads what the ones before it have summed, and stores its own sum over that."""

    @T.prim_func
    def main(X: T.Tensor((3, 64), "float32"), Sum: T.Tensor((64,), "float32"), Turn: T.Tensor((1,), "int32")):
        with T.Kernel(3, threads=64) as block:
            x = T.alloc_fragment((64,), "float32")
            turn = T.alloc_var("int32", init=-1)
            T.copy(X[block, :], x)
            while turn != block:
                turn = T.atomic_load(Turn[0], memory_order="acquire")
            for i in T.Parallel(64):
                x[i] += Sum[63 - i]
            T.copy(x, Sum)
            T.sync_threads()
            if T.get_thread_binding() == 0:
                T.atomic_store(Turn[0], block + 1, memory_order=order)

    return main


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "gfx942"])
def test_blocks_overwrite_what_others_have_read(target):
    x, start = np.arange(192, dtype=np.float32).reshape(3, 64), np.zeros(64, np.float32)
    turn, total = np.zeros(1, np.int32), x[2] + (x[1] + x[0][::-1])[::-1]
    given = (x, start, turn)
    agree(_added_in_turn("release"), *given, expected=[total, np.full(1, 3, np.int32)], targets=(target,))
    run = EmulatedKernel(elaborated(_added_in_turn("relaxed"), given, None, {}, {}), parse_target(target))
    with pytest.raises(EmulationError, match=r"bytes \d+ to \d+ of Sum, which another block has"):
        run([x, start, turn], {})


def test_the_swap_of_a_byte_keeps_the_others_of_its_word(tmp_path):
    """The device's function as C of this machine, on every byte of a word."""
    head = "#define __device__\n#define __forceinline__\n#define atomicCAS __sync_val_compare_and_swap\n"
    source, library = tmp_path / "swap.c", tmp_path / "swap.so"
    source.write_text(head + SWAP_BYTE_CODE)
    link("-shared", "-fPIC", source, "-o", library)
    swap = getattr(ctypes.CDLL(str(library)), SWAP_BYTE)
    swap.argtypes, swap.restype = (ctypes.c_void_p, ctypes.c_ushort, ctypes.c_ushort), ctypes.c_ushort
    memory = np.zeros(32, np.uint8)
    for place in range(8, 16):
        memory[:] = np.arange(32)
        at = memory.ctypes.data + place
        assert swap(at, 200, 77) == place, "another byte than expected stays"
        assert swap(at, place, 255) == place
        wanted = np.arange(32)
        wanted[place] = 255
        np.testing.assert_array_equal(memory, wanted)
