"""Loops of one thread over neighbours: right everywhere, in vectors on GPUs where rows allow."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, elaborated, roads

import tilec.language as T
from tilec.backends.pipeline import lower
from tilec.ir.guards import Guard
from tilec.ir.nodes import For, Store, walk
from tilec.targets import parse_target

ROWS, DEPTH = 37, 48
TARGETS = ("cpu", "sm_80", "sm_90a", "gfx942")
ANY = {"N": Guard(), "K": Guard(div=8)}
N, K = T.dynamic("N"), T.dynamic("K")


@T.prim_func
def weighted(A: T.Tensor((N, K), "float16"), W: T.Tensor((N, K), "uint8"), C: T.Tensor((N,), "float32")):
    """A row of halves and bytes for each thread, from the ninth element on."""
    with T.Kernel(T.ceildiv(N, 32), threads=32) as bx:
        for i in T.Parallel(32):
            total = T.alloc_var("float32")
            total = 0.0
            for k in T.serial(8, K):
                if A[bx * 32 + i, k] > 0.0:
                    total += A[bx * 32 + i, k] * T.cast(W[bx * 32 + i, k] & 15, "float32")
            C[bx * 32 + i] = total


@T.prim_func
def guarded(A: T.Tensor((N, K), "float16"), B: T.Tensor((N, K), "float16")):
    with T.Kernel(T.ceildiv(N, 32), T.ceildiv(K, 32), threads=128) as (bx, by):
        for i, j in T.Parallel(32, 4):
            for v in T.unroll(8):
                row, column = bx * 32 + i, by * 32 + j * 8 + v
                if row < N and column < K:
                    B[row, column] = A[row, column] * 2.0 + 1.0


@T.prim_func
def scaled(A: T.Tensor((N, K), "float16"), S: T.Tensor((N,), "float32"), count: T.Tensor((N,), "int32")):
    with T.Kernel(T.ceildiv(N, 32), threads=32) as bx:
        for i in T.Parallel(32):
            positive = T.alloc_var("int32")
            positive = 0
            for k in T.serial(K):
                x = A[bx * 32 + i, k]
                if x > 0.0:
                    positive += 1
                A[bx * 32 + i, k] = x * S[bx * 32 + i]
            count[bx * 32 + i] = positive


@T.prim_func
def threads(A: T.Tensor((N, K), "float16"), C: T.Tensor((N,), "float32")):
    with T.Kernel(N, threads=32) as row:
        lane = T.get_thread_binding()
        total = T.alloc_var("float32")
        total = 0.0
        for chunk in T.serial(T.ceildiv(K, 256)):
            for v in T.serial(8):
                total += A[row, chunk * 256 + lane * 8 + v]
        total = T.warp_reduce_sum(total)
        if lane == 0:
            C[row] = total


@T.prim_func
def running(A: T.Tensor((N, K), "float32"), B: T.Tensor((N, K), "float32")):
    """Each trip reads what the one before has stored; the second loop stores to one element again."""
    with T.Kernel(T.ceildiv(N, 32), threads=32) as bx:
        for i in T.Parallel(32):
            for k in T.serial(1, K):
                A[bx * 32 + i, k] = A[bx * 32 + i, k] + A[bx * 32 + i, k - 1]
            for k in T.serial(K):
                B[bx * 32 + i, 0] = A[bx * 32 + i, k]
                B[bx * 32 + i, k] = A[bx * 32 + i, k] + 1.0


@T.prim_func
def decoded(
    codes: T.Tensor((N, K), "uint8"), table: T.Tensor((16,), "float32"), B: T.Tensor((N, K * 2), "float16")
):
    """Both codes of a byte become neighbours."""
    with T.Kernel(T.ceildiv(N, 8), threads=32) as bx:
        for i, j in T.Parallel(8, K // 8):
            for v in T.serial(8):
                both = codes[bx * 8 + i, j * 8 + v]
                B[bx * 8 + i, j * 16 + 2 * v] = table[both & 15]
                B[bx * 8 + i, j * 16 + 2 * v + 1] = table[both >> 4]


@T.prim_func
def halved(codes: T.Tensor((N, K), "uint8"), B: T.Tensor((N, K * 2), "int32")):
    """Each byte is read by two trips."""
    with T.Kernel(T.ceildiv(N, 8), threads=32) as bx:
        for i, j in T.Parallel(8, K // 8):
            for v in T.serial(16):
                at = j * 16 + v
                B[bx * 8 + i, at] = (codes[bx * 8 + i, at // 2] >> at % 2 * 4) & 15


@T.prim_func
def shared(A: T.Tensor((N, 64), "float16"), B: T.Tensor((N, 32), "float32")):
    """Dots of rows in shared memory, some of whose elements a thread writes itself."""
    with T.Kernel(T.ceildiv(N, 32), threads=32) as bx:
        a = T.alloc_shared((32, 64), "float16")
        T.copy(A[bx * 32, 0], a)
        for i, j in T.Parallel(32, 32):
            total = T.alloc_var("float32")
            total = 0.0
            for k in T.serial(64):
                total += a[i, k] * T.cast(a[j, k], "float32")
            B[bx * 32 + i, j] = total
        for i in T.Parallel(32):
            for k in T.serial(4):
                a[i, k] = a[i, k + 4]
                a[i, k + 4] = a[i, k] + 1.0
        T.copy(a, A[bx * 32, 0])


@T.prim_func
def unpacked(
    W: T.Tensor((64, 16), "int32"), S: T.Tensor((128,), "float16"), B: T.Tensor((64, 128), "float16")
):
    """Eight numbers of each word, as elements of a fragment and of a tile whose rows are turned."""
    with T.Kernel(1, threads=64):
        words, turned = T.alloc_shared((64, 16), "int32"), T.alloc_shared((128, 64), "float16")
        held = T.alloc_fragment((64, 128), "float16")
        T.copy(W, words)
        for i, j in T.Parallel(64, 16):
            word = words[i, j]
            for t in T.unroll(8):
                held[i, j * 8 + t] = T.cast((word >> (4 * t)) & 15, "float16") * S[j * 8 + t]
        for j, i in T.Parallel(16, 64):
            if i < 60:
                for t in T.serial(8):
                    turned[j * 8 + t, i] = T.cast((words[i, j] >> (4 * t)) & 15, "float16")
        for i, j in T.Parallel(64, 128):
            B[i, j] = T.if_then_else(i < 60, held[i, j] - turned[j, i], held[i, j])


@T.prim_func
def read_before(A: T.Tensor((64, 8), "float32")):
    """What all trips of an iteration read in front of them, one of them stores."""
    with T.Kernel(1, threads=64):
        s = T.alloc_shared((64, 8), "float32")
        T.copy(A, s)
        for i in T.Parallel(64):
            first = s[i, 0]
            for t in T.serial(8):
                s[i, t] = s[i, t] + first
        T.copy(s, A)


@T.prim_func
def shifted(A: T.Tensor((N, 16), "float16")):
    """What several trips of one chunk store: the last one's stays."""
    with T.Kernel(T.ceildiv(N, 32), threads=32) as bx:
        for i in T.Parallel(32):
            for k in T.serial(8):
                A[bx * 32 + i, k] = 1.0 + k
                A[bx * 32 + i, k + 4] = 100.0 + k
                A[bx * 32 + i, k + 8] = 200.0 + k


def halves(*shape):
    return (np.random.default_rng(7).integers(-8, 9, shape) / 4).astype(np.float16)


def loops(kernel, *inputs, dims=ANY):
    """What the roads of a kernel's vectors say."""
    return [road.instruction for road in roads(kernel, *inputs, dims=dims) if "vectors" in road.instruction]


@pytest.mark.parametrize("dims", [ANY, None])
def test_sums_over_neighbours(dims):
    a, w = halves(ROWS, DEPTH), np.random.default_rng(1).integers(0, 256, (ROWS, DEPTH)).astype(np.uint8)
    wide = np.maximum(a.astype(np.float32), 0) * (w & 15)
    agree(weighted, a, w, expected=wide[:, 8:].sum(1), dims=dims, targets=TARGETS)


def test_a_test_that_a_chunk_passes_as_a_whole():
    a = halves(ROWS, DEPTH)
    agree(guarded, a, expected=a * 2 + 1, dims=ANY, targets=TARGETS)
    assert loops(guarded, a) == ["vectors of 16 bytes"]


def test_rows_of_any_length():
    a = halves(ROWS, DEPTH - 3)
    agree(guarded, a, expected=a * 2 + 1, dims={"N": Guard(), "K": Guard()}, targets=TARGETS)
    assert not loops(guarded, a, dims={"N": Guard(), "K": Guard()})


def test_trips_that_store_to_tiles():
    w = np.random.default_rng(2).integers(-(2**31), 2**31, (64, 16)).astype(np.int32)
    s = halves(128)
    numbers = ((w[:, :, None] >> (4 * np.arange(8))) & 15).reshape(64, 128).astype(np.float16)
    expected = numbers * s
    expected[:60] -= numbers[:60]
    agree(unpacked, w, s, expected=expected, targets=TARGETS)
    assert not any("held" in str(road) and "shared" in str(road) for road in roads(unpacked, w, s, dims=None))


def test_what_trips_read_in_front_of_them_stays():
    a = halves(64, 8).astype(np.float32)
    agree(read_before, a, expected=a + a[:, :1], targets=TARGETS)


def test_neighbours_in_place():
    a, s = halves(ROWS, DEPTH), np.arange(ROWS, dtype=np.float32)
    result = (a.astype(np.float32) * s[:, None]).astype(np.float16)
    agree(scaled, a, s, expected=(result, (a > 0).sum(1).astype(np.int32)), dims=ANY, targets=TARGETS)
    assert loops(scaled, a, s) == ["vectors of 16 bytes"] * 2


def test_neighbours_of_threads():
    a = halves(ROWS, 264)
    agree(threads, a, expected=a.astype(np.float32).sum(1), dims=ANY, targets=TARGETS)
    assert loops(threads, a) == ["vectors of 16 bytes"]


def test_two_neighbours_of_each_byte():
    codes = np.random.default_rng(3).integers(0, 256, (ROWS, DEPTH)).astype(np.uint8)
    table = np.arange(16, dtype=np.float32) - 7.5
    both = np.stack([codes & 15, codes >> 4], -1).reshape(ROWS, 2 * DEPTH)
    agree(decoded, codes, table, expected=table[both].astype(np.float16), dims=ANY, targets=TARGETS)
    assert loops(decoded, codes, table) == ["vectors of 8 bytes", "vectors of 16 bytes"]
    agree(halved, codes, expected=both.astype(np.int32), dims=ANY, targets=TARGETS)
    assert loops(halved, codes, dims={"N": ROWS, "K": DEPTH}) == ["vectors of 2 to 16 bytes"]


def test_neighbours_in_shared_memory():
    a = halves(ROWS, 64)
    tiles = np.concatenate([a, np.zeros((64 - ROWS, 64), np.float16)]).reshape(2, 32, 64).astype(np.float32)
    moved = a.copy()
    moved[:, :4], moved[:, 4:8] = a[:, 4:8], a[:, 4:8] + 1
    dots = (tiles @ tiles.transpose(0, 2, 1)).reshape(64, 32)[:ROWS]
    agree(shared, a, expected=(moved, dots), dims={"N": Guard()}, targets=TARGETS)
    assert "vectors of 16 bytes" in loops(shared, a, dims={"N": Guard()})


def test_trips_of_a_chunk_that_store_to_one_element():
    row = np.empty(16, np.float16)
    for k in range(8):
        row[[k, k + 4, k + 8]] = 1 + k, 100 + k, 200 + k
    agree(shifted, expected=np.broadcast_to(row, (ROWS, 16)), dims={"N": ROWS}, targets=TARGETS)


def test_elements_of_other_trips_stay_in_order():
    a = halves(ROWS, DEPTH).astype(np.float32)
    sums = np.cumsum(a, 1)
    last = np.concatenate([sums[:, -1:], sums[:, 1:] + 1], 1)
    agree(running, a, expected=(sums, last), dims=ANY, targets=TARGETS)


@T.prim_func
def handed_on(A: T.Tensor((N, 16), "float16")):
    """Each trip reads what the one before has stored beside its own element."""
    with T.Kernel(T.ceildiv(N, 32), threads=32) as bx:
        for i in T.Parallel(32):
            for k in T.serial(8):
                x = A[bx * 32 + i, k]
                A[bx * 32 + i, k + 1] = 7.0 + k
                A[bx * 32 + i, k] = x + 1.0


def test_an_element_that_the_trip_before_has_stored():
    a = halves(ROWS, 16)
    expected = a.copy()
    expected[:, 0] += 1
    expected[:, 1:8] = np.arange(7) + 8
    expected[:, 8] = 14
    agree(handed_on, a, expected=expected, dims={"N": Guard()}, targets=TARGETS)


@T.prim_func
def by_groups(W: T.Tensor((64, 64), "uint8"), S: T.Tensor((64, 4), "float16"), Y: T.Tensor((64,), "float32")):
    """Bytes that a thread has in a row, of which each trip takes a group, and weights that trips change."""
    with T.Kernel(4, threads=64) as bx:
        codes = T.alloc_fragment((16, 64), "uint8")
        steps = T.alloc_fragment((16, 4), "float16")
        weights = T.alloc_fragment((64,), "float32")
        terms = T.alloc_fragment((16, 16), "float32")
        total = T.alloc_fragment((16,), "float32")
        T.copy(W[bx * 16, 0], codes)
        T.copy(S[bx * 16, 0], steps)
        T.fill(weights, 1.0)
        T.clear(terms)
        for group in T.serial(4):
            for i, j in T.Parallel(16, 16):
                code = T.cast(codes[i, group * 16 + j], "float32") * weights[group * 16 + j]
                terms[i, j] += code * steps[i, group]
            for j in T.Parallel(64):
                weights[j] = weights[j] + 1.0
        T.reduce_sum(terms, total, dim=1)
        T.copy(total, Y[bx * 16])


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
def test_what_trips_pass_on_unchanged_is_passed_on_once(target):
    w = np.random.default_rng(6).integers(0, 16, (64, 64)).astype(np.uint8)
    s = halves(64, 4)
    groups = w.reshape(64, 4, 16).astype(np.float32).sum(2) * s * (np.arange(4) + 1)
    agree(by_groups, w, s, expected=groups.sum(1), targets=(target,), rtol=1e-4)
    launch = lower(elaborated(by_groups, (w, s), None, {}, {}), parse_target(target)).launches[0]
    (loop,) = (stmt for stmt in launch.body if isinstance(stmt, For))
    inside = {stmt.buffer.name for stmt in walk(loop.body) if isinstance(stmt, Store)}
    assert not inside & {"codes_shared", "steps_shared"}
    assert "weights_shared" in inside
