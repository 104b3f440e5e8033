"""Loops: sequential, parallel, pipelined and persistent ones, with every kind of extent and body."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, build, numbers
from breadth import diagonal, parametrized

import tilec.language as T
from tilec.backends.cuda.emit.entry import lower_kernel
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.errors import SourceTypeError, SourceValueError
from tilec.language.frontend.elaborate import elaborate
from tilec.manifest.guards import parse_guard
from tilec.targets import parse_target

# Sequential loops -------------------------------------------------------------------------------------------


def test_serial_loops_with_steps_of_every_sign_and_none_at_all():
    @T.prim_func
    def main(A: T.Tensor((16,), "int32"), n: T.int32, B: T.Tensor((6, 16), "int32")):
        with T.Kernel(1, threads=32):
            T.clear(B)
            for j in T.serial(15, -1, -1):
                B[0, j] = A[15 - j]
            for j in range(0, 16, 2):
                B[1, j] = A[j]
            for j in T.Serial(1, 16, n):
                B[2, j] = A[j]
            for j in T.unroll(0, 16, unroll_factor=4):
                B[3, j] = A[j]
            for j in T.Unroll(3, 9, 3, explicit=True):
                B[4, j] = A[j]
            for j in T.serial(5, 5):
                B[5, j] = 1
            for j in T.serial(5, 2):
                B[5, j] = 1
            for j in T.serial(n - 3):
                B[5, j] = 1

    a = numbers(16, dtype="int32")
    at = np.arange(16)
    agree(main, a, 3, expected=np.stack([a[::-1], np.where(at % 2, 0, a), np.where(at % 3 == 1, a, 0), a,
                                         np.where((at == 3) | (at == 6), a, 0), 0 * a]))  # fmt: skip


@pytest.mark.parametrize("size", [1, 9])
def test_unrolled_loops_whose_trips_a_call_decides(size):
    K = T.dynamic("K")

    @T.prim_func
    def main(A: T.Tensor((2, K), "int32"), B: T.Tensor((3, 2), "int32")):
        with T.Kernel(2, threads=32) as b:
            s = T.alloc_var("int32")
            for k in T.unroll(K):
                s += A[b, k]
            B[0, b] = s
            for i in T.Parallel(32):
                late = T.alloc_var("int32", 0)
                for k in T.unroll(b, K, explicit=True):
                    late += A[b, k]
                if i == 0:
                    B[1, b] = late
            s = 0
            for k in T.unroll(T.ceildiv(K, 4), unroll_factor=2):
                for each in T.unroll(T.min(4, K - k * 4)):
                    s += A[b, k * 4 + each]
            B[2, b] = s

    a = numbers(2, size, dtype="int32")
    total = a.sum(1)
    agree(main, a, expected=np.stack([total, [total[0], a[1, 1:].sum()], total]))


def test_grids_and_vectors_as_serial_loops():
    @T.prim_func
    def main(A: T.Tensor((4, 6), "float32"), B: T.Tensor((4, 6), "float32"), C: T.Tensor((4, 6), "float32"),
             D: T.Tensor((6,), "float32")):  # fmt: skip
        with T.Kernel(1, threads=32):
            for i, j in T.grid(4, 6):
                B[i, j] = A[i, j] * 2
            for i in T.serial(4):
                for j in T.vectorized(6):
                    C[i, j] = A[i, j] + 1
            total = T.alloc_var("float32")
            for j in T.Vectorized(6):
                total += A[0, j]
                D[j] = total

    a = numbers(4, 6)
    agree(main, a, expected=[a * 2, a + 1, a[0].cumsum()])


# Parallel loops ---------------------------------------------------------------------------------------------


def test_run_time_extents():
    @T.prim_func
    def main(
        A: T.Tensor((64,), "float32"), n: T.int32, m: T.int32, B: T.Tensor((64,), "float32"),
        C: T.Tensor((64,), "float32"), D: T.Tensor((8, 8), "float32"), E: T.Tensor((1,), "float32"),
    ):  # fmt: skip
        with T.Kernel(1, threads=32):
            f, s = T.alloc_fragment((64,), "float32"), T.alloc_shared((64,), "float32")
            total = T.alloc_fragment((1,), "float32")
            T.copy(A, f)
            T.clear(s)
            T.clear(D)
            T.clear(total)
            for i in T.Parallel(n):
                s[i] = f[i] + 1
            for i in T.Parallel(n):
                f[i] = f[i] * 2
            for i, j in T.Parallel(m, n - 34):
                D[i, j] = A[i * 8 + j]
            for i in T.Parallel(n):
                total[0] += A[i]
            T.copy(f, B)
            T.copy(s, C)
            E[0] = total[0]

    a = numbers(64)
    d = np.where((np.arange(8)[:, None] < 5) & (np.arange(8) < 3), a.reshape(8, 8), 0)
    agree(main, a, 37, 5, expected=[np.r_[a[:37] * 2, a[37:]], np.r_[a[:37] + 1, np.zeros(27)], d,
                                    [a[:37].sum()]])  # fmt: skip


def test_more_iterations_than_32_bits_count():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(T.ceildiv(64, 10**11), threads=32) as bx:
            for i in T.Parallel(10**11):
                if bx * 10**11 + i < 64:
                    B[bx * 10**11 + i] = A[bx * 10**11 + i] * 2

    for name in ("x86-64-v3", "sm_80"):
        to_tir(lower(build(main), parse_target(name)), parse_target(name))


def test_tiles_of_more_elements_than_32_bits_count_are_refused():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=32):
            T.copy(A, T.alloc_shared((10**5, 10**5), "float32"))

    with pytest.raises(SourceValueError, match=r"T\.alloc_shared of 100000 x 100000 elements"):
        build(main)


def test_chains_of_names_that_double_build_in_time():
    @T.prim_func
    def main(B: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(64):
                x = i
                for _ in [0] * 30:
                    x = (x * 3 + x // 7) % 1003
                B[i] = x

    build(main)


def test_extents_of_one_a_prime_more_than_threads_and_none():
    @T.prim_func
    def main(A: T.Tensor((1000,), "float32"), B: T.Tensor((1000,), "float32")):
        with T.Kernel(1, threads=96):
            f, g, h = (T.alloc_fragment((n,), "float32") for n in (1000, 37, 1))
            T.copy(A, f)
            T.copy(A[0:37], g)
            T.copy(A[0:1], h)
            for i in T.Parallel(1000):
                B[i] = f[i] * 2
            for i in T.Parallel(37):
                B[i] = g[i] * 3
            for i in T.Parallel(1):
                B[i] = h[i] * 4
            for i in T.Parallel(0):
                B[i] = 0

    a = numbers(1000)
    agree(main, a, expected=np.r_[a[:1] * 4, a[1:37] * 3, a[37:] * 2])


def test_permuted_shifted_strided_and_gathered_elements_of_fragments():
    @T.prim_func
    def main(
        A: T.Tensor((12, 20), "float32"), At: T.Tensor((20,), "int32"), B: T.Tensor((20, 12), "float32"),
        C: T.Tensor((12, 20), "float32"), D: T.Tensor((12, 10), "float32"), E: T.Tensor((20,), "float32"),
    ):  # fmt: skip
        with T.Kernel(1, threads=64):
            f, g, h = (T.alloc_fragment(shape, "float32") for shape in ((12, 20), (20, 12), (12, 20)))
            at = T.alloc_fragment((20,), "int32")
            T.copy(A, f)
            T.copy(At, at)
            for i, j in T.Parallel(20, 12):
                g[i, j] = f[j, i]
            T.copy(g, B)
            for i, j in T.Parallel(12, 20):
                h[i, j] = f[11 - i, j]
            for i, j in T.Parallel(12, 19):
                h[i, j] = h[i, j] + f[i, j + 1]
            T.copy(h, C)
            for i, j in T.Parallel(12, 10):
                D[i, j] = f[i, 2 * j]
            for j in T.Parallel(20):
                E[j] = f[3, at[j]]

    a, at = numbers(12, 20), np.random.default_rng(1).integers(0, 20, 20).astype(np.int32)
    c = a[::-1].copy()
    c[:, :19] += a[:, 1:]
    agree(main, a, at, expected=[a.T, c, a[:, ::2], a[3][at]])


def test_flat_and_split_indices_of_fragments():
    @T.prim_func
    def main(
        A: T.Tensor((8, 32), "float32"), B: T.Tensor((256,), "float32"), C: T.Tensor((64, 4), "float32")
    ):
        with T.Kernel(1, threads=64):
            flat, pairs = T.alloc_fragment((256,), "float32"), T.alloc_fragment((64, 4), "float32")
            for i, j in T.Parallel(8, 32):
                flat[i * 32 + j] = A[i, j]
            for i in T.Parallel(256):
                pairs[i // 4, i % 4] = flat[i] + 1
            T.copy(flat, B)
            T.copy(pairs, C)

    a = numbers(8, 32)
    agree(main, a, expected=[a.reshape(-1), a.reshape(64, 4) + 1])


def test_elements_that_several_iterations_add_to():
    @T.prim_func
    def main(
        A: T.Tensor((6, 20), "float32"), B: T.Tensor((6,), "float32"), C: T.Tensor((20,), "float32"),
        D: T.Tensor((1,), "float32"), E: T.Tensor((20,), "float32"),
    ):  # fmt: skip
        with T.Kernel(1, threads=64):
            f, rows, columns = (T.alloc_fragment(shape, "float32") for shape in ((6, 20), (6,), (20,)))
            total, s = T.alloc_fragment((1,), "float32"), T.alloc_shared((20,), "float32")
            T.copy(A, f)
            T.clear(rows)
            T.fill(columns, -T.infinity("float32"))
            T.fill(total, 5)
            T.clear(s)
            for i, j in T.Parallel(6, 20):
                rows[i] += f[i, j]
                columns[j] = T.max(columns[j], f[i, j])
                total[0] += f[i, j]
            for i in T.serial(6):
                for j in T.Parallel(20):
                    s[j] += A[i, j]
            T.copy(rows, B)
            T.copy(columns, C)
            D[0] = total[0]
            T.copy(s, E)

    a = numbers(6, 20)
    agree(main, a, expected=[a.sum(1), a.max(0), [a.sum() + 5], a.sum(0)])


def test_continue_branches_variables_and_loops_inside():
    @T.prim_func
    def main(
        A: T.Tensor((6, 20), "float32"), B: T.Tensor((6, 20), "float32"), C: T.Tensor((6, 20), "float32"),
        D: T.Tensor((20, 6), "float32"),
    ):  # fmt: skip
        with T.Kernel(1, threads=64):
            f = T.alloc_fragment((6, 20), "float32")
            T.clear(f)
            for i, j in T.Parallel(6, 20):
                if (i + j) % 3 == 0:
                    continue
                v = T.alloc_var("float32")
                if A[i, j] > 0:  # noqa: SIM108
                    v = A[i, j]
                else:
                    v = -1
                f[i, j] = v
            T.copy(f, B)
            for i in T.Parallel(6):
                v = T.alloc_var("float32")
                for j in T.serial(20):
                    v += A[i, j]
                    C[i, j] = v
            for i in T.Parallel(6):
                row = i * 1
                for j in T.Parallel(20):
                    D[j, row] = A[row, j] + 1

    a = numbers(6, 20)
    skipped = (np.arange(6)[:, None] + np.arange(20)) % 3 == 0
    agree(main, a, expected=[np.where(skipped, 0, np.where(a > 0, a, -1)), a.cumsum(1), a.T + 1])


def test_iterations_that_continue_leave_a_tile_as_it_was_filled():
    @T.prim_func
    def main(A: T.Tensor((32,), "int32"), n: T.int32, B: T.Tensor((32,), "int32")):
        with T.Kernel(1, threads=32):
            tile = T.alloc_shared((32,), "int32")
            T.fill(tile, 6)
            for i in T.Parallel(32):
                if i < n:
                    continue
                tile[i] = A[i]
            T.copy(tile, B)

    a = numbers(32, dtype="int32")
    agree(main, a, 20, expected=np.where(np.arange(32) < 20, 6, a))


def test_elements_of_fragments_outside_of_parallel_loops():
    @T.prim_func
    def main(
        A: T.Tensor((6, 20), "float32"), B: T.Tensor((6, 20), "float32"), C: T.Tensor((6, 2), "float32")
    ):
        with T.Kernel(1, threads=64):
            f, total = T.alloc_fragment((6, 20), "float32"), T.alloc_var("float32")
            T.copy(A, f)
            for i, j in T.grid(6, 20):
                total += f[i, j]
            for i in T.serial(6):
                first = f[i, 0]
                C[i, 0] = f[i, 5]
                C[i, 1] = first
                f[i, 3] = 9
                f[i, 6] = total
            T.copy(f, B)

    a = numbers(6, 20)
    b = a.copy()
    b[:, 3], b[:, 6] = 9, a.sum()
    agree(main, a, expected=[b, a[:, [5, 0]]])


def test_packed_elements_that_several_iterations_read():
    @T.prim_func
    def main(A: T.Tensor((16, 8), "uint8"), B: T.Tensor((16, 16), "uint8")):
        with T.Kernel(1, threads=64):
            f, g = T.alloc_fragment((16, 8), "uint8"), T.alloc_fragment((16, 16), "uint8")
            T.copy(A, f)
            for i, j in T.Parallel(16, 16):
                g[i, j] = (f[i, j // 2] >> ((j % 2) * 4).astype("uint8")) & T.uint8(15)
            T.copy(g, B)

    a = np.random.default_rng(0).integers(0, 256, (16, 8)).astype(np.uint8)
    agree(main, a, expected=np.stack([a & 15, a >> 4], -1).reshape(16, 16))


@pytest.mark.parametrize("per", [4, 16, 64])
def test_elements_that_iterations_of_several_threads_read(per):
    @T.prim_func
    def main(
        A: T.Tensor((16, 64), "float32"), S: T.Tensor((16, 64 // per), "float32"), B: T.Tensor((16, 64))
    ):
        with T.Kernel(1, threads=64):
            f, s = T.alloc_fragment((16, 64), "float32"), T.alloc_fragment((16, 64 // per), "float32")
            T.copy(S, s)
            T.copy(A, f)
            for i, j in T.Parallel(16, 64):
                f[i, j] *= s[i, j // per]
            T.copy(f, B)

    a, s = numbers(16, 64), numbers(16, 64 // per)
    agree(main, a, s, expected=a * np.repeat(s, per, 1))


# Pipelined loops --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trips", [0, 1, 2, 5])
def test_pipelines_of_any_length(trips):
    @T.prim_func
    def main(
        A: T.Tensor((80,), "float32"),
        n: T.int32,
        B: T.Tensor((16,), "float32"),
        C: T.Tensor((16,), "float32"),
    ):
        with T.Kernel(1, threads=32):
            s, f, g = (
                T.alloc_shared((16,), "float32"),
                T.alloc_fragment((16,), "float32"),
                T.alloc_fragment((16,), "float32"),
            )
            T.clear(f)
            T.clear(g)
            for k in T.Pipelined(n, num_stages=3):
                T.copy(A[k * 16], s)
                for i in T.Parallel(16):
                    f[i] += s[i]
            for k in T.Pipelined(1, n, num_stages=2):
                T.copy(A[k * 16], s)
                for i in T.Parallel(16):
                    g[i] = g[i] * 2 + s[i]
            T.copy(f, B)
            T.copy(g, C)

    a = numbers(80)
    c = np.zeros(16)
    for k in range(1, trips):
        c = c * 2 + a[k * 16 : k * 16 + 16]
    agree(main, a, trips, expected=[a[: trips * 16].reshape(trips, 16).sum(0) if trips else np.zeros(16), c])


SCHEDULES = [
    {"order": [0, 1, 2], "stage": [0, 0, 1]},
    {"order": [2, 0, 1], "stage": [0, 0, 1], "group": [[0, 1], [2]], "sync": [[0], [1]]},
    {"order": [-1, 0, 1], "stage": [-1, 0, 1]},
    {"num_stages": 1},
]
DTYPES = ("float16", "float32")


@parametrized(
    ("schedule", "dtype"),
    [(schedule, dtype) for schedule in SCHEDULES for dtype in DTYPES],
    fast=diagonal(SCHEDULES, DTYPES),
)
def test_explicit_schedules_change_no_result(schedule, dtype):
    @T.prim_func
    def main(A: T.Tensor((64, 32), dtype), B: T.Tensor((32, 64), dtype), n: T.int32,
             C: T.Tensor((64, 64), "float32")):  # fmt: skip
        with T.Kernel(1, threads=128):
            a, b = T.alloc_shared((64, 16), dtype), T.alloc_shared((16, 64), dtype)
            c = T.alloc_fragment((64, 64), "float32")
            T.clear(c)
            for k in T.Pipelined(n, **{"num_stages": 2, **schedule}):
                T.copy(A[0, k * 16], a)
                T.copy(B[k * 16, 0], b)
                T.gemm(a, b, c)
            T.copy(c, C)

    a, b = numbers(64, 32, dtype=dtype), numbers(32, 64, dtype=dtype, seed=1)
    agree(main, a, b, 2, expected=a.astype(np.float64) @ b.astype(np.float64))


def test_what_loops_carry_and_places_that_are_looked_up():
    @T.prim_func
    def main(A: T.Tensor((8, 16), "float32"), At: T.Tensor((8,), "int32"), B: T.Tensor((16,), "float32")):
        with T.Kernel(1, threads=32):
            s, f = T.alloc_shared((16,), "float32"), T.alloc_fragment((16,), "float32")
            weight = T.alloc_var("float32", 1)
            T.clear(f)
            for k in T.Pipelined(8, num_stages=3):
                row = At[k]
                T.copy(A[row, :], s)
                for i in T.Parallel(16):
                    f[i] += s[i] * weight
                weight += 1
            T.copy(f, B)

    a, at = numbers(8, 16), np.array([3, 1, 7, 0, 2, 2, 5, 6], np.int32)
    agree(main, a, at, expected=(a[at] * np.arange(1, 9)[:, None]).sum(0))


def test_copies_under_conditions_and_in_inner_loops():
    @T.prim_func
    def main(A: T.Tensor((8, 16), "float32"), M: T.Tensor((8,), "int32"), B: T.Tensor((3, 16), "float32")):
        with T.Kernel(1, threads=32):
            s, t, f = (
                T.alloc_shared((16,), "float32"),
                T.alloc_shared((16,), "float32"),
                T.alloc_fragment((16,), "float32"),
            )
            T.clear(f)
            for k in T.Pipelined(8, num_stages=2):
                if M[k] != 0:
                    T.copy(A[k, :], s)
                    for i in T.Parallel(16):
                        f[i] += s[i]
            T.copy(f, B[0, :])
            T.clear(f)
            for k in T.Pipelined(8, num_stages=2):
                T.copy(A[k, :], t)
                if M[k] != 0:
                    T.copy(A[k, :], s)
                else:
                    T.clear(s)
                for i in T.Parallel(16):
                    f[i] += s[i] + t[i]
            T.copy(f, B[1, :])
            T.clear(f)
            for k in T.Pipelined(4, num_stages=2):
                for q in T.serial(2):
                    T.copy(A[k * 2 + q, :], s)
                    for i in T.Parallel(16):
                        f[i] += s[i]
                if k == 2:
                    break
            T.copy(f, B[2, :])

    a, m = numbers(8, 16), np.array([1, 0, 0, 1, 1, 0, 1, 0], np.int32)
    chosen = a[m > 0].sum(0)
    agree(main, a, m, expected=np.stack([chosen, chosen + a.sum(0), a[:6].sum(0)]))


def test_a_pipeline_in_a_while_loop():
    @T.prim_func
    def main(A: T.Tensor((8, 16), "float32"), B: T.Tensor((16,), "float32")):
        with T.Kernel(1, threads=32):
            s, f = T.alloc_shared((16,), "float32"), T.alloc_fragment((16,), "float32")
            it = T.alloc_var("int32", 0)
            T.clear(f)
            while it < 8:
                steps = T.min(3, 8 - it)
                for k in T.Pipelined(steps, num_stages=2):
                    T.copy(A[it + k, :], s)
                    for i in T.Parallel(16):
                        f[i] += s[i]
                it += steps
            T.copy(f, B)

    a = numbers(8, 16)
    agree(main, a, expected=a.sum(0))


# Persistent loops -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("domain", "group"), [([5, 7], 3), ([4], 8), ([2, 3, 5], 1)])
def test_persistent_blocks_take_every_tile_once(domain, group):
    shape = (*(1,) * (3 - len(domain)), *domain)

    @T.prim_func
    def main(B: T.Tensor(shape, "int32"), C: T.Tensor(shape, "int32")):
        with T.Kernel(4, threads=32) as bx:
            order = T.alloc_var("int32")
            for tile in T.Persistent(domain, 4, bx, group_size=group):
                at = tile if isinstance(tile, tuple) else (tile,)
                place = (*(0,) * (3 - len(domain)), *at)
                for _ in T.Parallel(1):
                    T.atomic_add(B[place], 1)
                C[place] = bx * 100 + order
                order += 1

    ids = {}
    last = domain[-1]
    size = max(1, min(group, last))
    tiles = -(-last // size) * size * int(np.prod(domain[:-1]))
    c = np.zeros(domain, np.int64)
    for index in range(4):
        count = 0
        for number in range(index, tiles, 4):
            rest, place = number // size, []
            for extent in reversed(domain[:-1]):
                place.insert(0, rest % extent)
                rest //= extent
            place.append(rest * size + number % size)
            if place[-1] < last:
                assert tuple(place) not in ids
                ids[tuple(place)] = index
                c[tuple(place)] = index * 100 + count
                count += 1
    agree(main, np.zeros(shape, np.int32), expected=[np.ones(shape), c.reshape(shape)])


@pytest.mark.parametrize(
    ("use", "kind", "match"),
    [
        (lambda n: T.serial(0, 4, 0), SourceValueError, "step 0"),
        (lambda n: T.serial(1.5), SourceTypeError, "takes integers"),
        (lambda n: T.unroll(4, explicit=True, unroll_factor=2), SourceValueError, "not both"),
        (lambda n: T.Parallel(), SourceValueError, "at least one extent"),
        (lambda n: T.Pipelined(4, num_stages=-1), SourceValueError, "no number of stages"),
        (lambda n: T.Pipelined(4, order=[0, 0], stage=[0, 1]), SourceValueError, "no permutation"),
        (lambda n: T.Pipelined(4, order=[0, 1], stage=[0]), SourceValueError, "2 entries, stage has 1"),
        (lambda n: T.Persistent([], 4, 0), SourceValueError, "one extent per loop variable"),
    ],
)
def test_wrong_loops_name_the_line(use, kind, match):
    @T.prim_func
    def main(A: T.Tensor((16,), "float32"), n: T.int32):
        with T.Kernel(1, threads=32):
            for _ in use(n):
                A[0] = 1

    with pytest.raises(kind, match=match) as caught:
        build(main)
    assert caught.value.place.file == __file__


@pytest.mark.parametrize("schedule", [{"order": [0, 1], "stage": [1, 0]}, {"order": [1, 0], "stage": [0, 0]}])
def test_a_schedule_that_runs_a_reader_first(schedule):
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), B: T.Tensor((16,), "float32")):
        with T.Kernel(1, threads=32):
            s, f = T.alloc_shared((16,), "float32"), T.alloc_fragment((16,), "float32")
            T.clear(f)
            for k in T.Pipelined(4, **schedule):
                T.copy(A[k * 16], s)
                for i in T.Parallel(16):
                    f[i] += s[i]
            T.copy(f, B)

    with pytest.raises(SourceValueError, match="statement 0 makes s, statement 1 reads it") as caught:
        build(main)
    assert caught.value.place.file == __file__


@pytest.mark.parametrize("form", ["extent", "condition"])
def test_rows_of_a_run_time_length_are_vectors_where_it_is_a_multiple_of_them(form):
    N = T.dynamic("N")

    @T.prim_func
    def main(A: T.Tensor((3, N), "float16"), B: T.Tensor((3, N), "float16")):
        with T.Kernel(3, threads=32) as bx:
            if form == "extent":
                for j in T.Parallel(N):
                    B[bx, j] = A[bx, j] * T.float16(2)
            else:
                for k in T.serial(T.ceildiv(N, 256)):
                    for j in T.Parallel(256):
                        at = k * 256 + j
                        if at < N:
                            B[bx, at] = A[bx, at] * T.float16(2)

    a, dims = numbers(3, 264, dtype="float16"), {"N": parse_guard("%8")}
    agree(main, a, dims=dims, expected=a * 2)
    target = parse_target("sm_80")
    made = elaborate(main, name="k", dims=dims, args={}, config={})
    (road,) = lower_kernel(lower(made, target), target).launches[0].roads
    assert road.instruction == "vectors of 16 bytes", road


def test_conditions_of_while_loops_that_read_what_their_trips_wrote():
    """Every thread asks for the flag or the count that others wrote, also behind a continue."""

    @T.prim_func
    def main(X: T.Tensor((64,), "int32"), Y: T.Tensor((2, 64), "int32")):
        with T.Kernel(1, threads=128):
            left, again, count = (T.alloc_shared((n,), "int32") for n in (64, 1, 1))
            T.copy(X, left)
            again[0] = 1
            while again[0] != 0:
                again[0] = 0
                for i in T.Parallel(64):
                    if left[i] > 0:
                        left[i] = left[i] - 1
                        again[0] = 1
            T.copy(left, Y[0, :])
            count[0] = 5
            while count[0] > 0:
                for i in T.Parallel(64):
                    left[63 - i] = left[63 - i] + i
                    if i == 63:
                        count[0] = count[0] - 1
                if count[0] == 3:
                    continue
                for i in T.Parallel(64):
                    left[i] = left[i] * 2
            T.copy(left, Y[1, :])

    wanted = np.zeros(64, np.int32)
    for count in (4, 3, 2, 1, 0):
        wanted = (wanted + np.arange(63, -1, -1)) * (1 if count == 3 else 2)
    agree(main, np.arange(64) % 7, expected=np.stack([wanted * 0, wanted]).astype(np.int32))
