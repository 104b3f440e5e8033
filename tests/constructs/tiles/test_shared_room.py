"""Shared tiles that only fit because they take turns on bytes, on the emulator with its race rules."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from agree import agree, elaborated

import tilec.language as T
from tilec.backends.cuda.passes.waits.place_shared import pool_bytes, shared_tiles
from tilec.backends.pipeline import lower
from tilec.emulate import EmulatedKernel
from tilec.errors import CompileError
from tilec.targets import parse_target

TARGETS = ("sm_80", "sm_90a")


def small(name: str, shared: int):
    """A target whose blocks have ``shared`` bytes."""
    target = parse_target(name)
    assert target.gpu is not None
    return replace(target, gpu=replace(target.gpu, shared_bytes=shared))


def run(kernel, shared: int, name: str, *inputs, out):
    """``out`` after the kernel on a GPU with that little shared memory, which it fills to more than half."""
    made = elaborated(kernel, inputs, {}, {}, {})
    target = small(name, shared)
    assert shared // 2 < pool_bytes(lower(made, target).launches[0]) <= shared
    EmulatedKernel(made, target)([*inputs, out], {})
    return out


def scores(stages):
    @T.prim_func
    def main(
        Q: T.Tensor((32, 32), "float16"),
        K: T.Tensor((256, 32), "float16"),
        W: T.Tensor((4, 8), "float32"),
        L: T.Tensor((256, 4), "float32"),
    ):
        """The sum over the heads of a query of what is positive of Q K, weighted: a score tile by head."""
        with T.Kernel(1, threads=128):
            q, k = T.alloc_shared((32, 32), "float16"), T.alloc_shared((64, 32), "float16")
            s, w = T.alloc_fragment((64, 32), "float32"), T.alloc_fragment((4, 8), "float32")
            tile = T.alloc_shared((64, 32), "float32")
            by_head = T.reshape(tile, (64, 4, 8))
            logits = T.alloc_fragment((64, 4), "float32")
            T.copy(Q, q)
            T.copy(W, w)
            for n in T.Pipelined(4, num_stages=stages):
                T.copy(K[n * 64, 0], k)
                T.gemm(k, q, s, transpose_B=True, clear_accum=True, policy=T.GemmWarpPolicy.FullCol)
                T.copy(s, tile)
                for i, j, h in T.Parallel(64, 4, 8):
                    by_head[i, j, h] = T.max(by_head[i, j, h], 0) * w[j, h]
                T.reduce_sum(by_head, logits, dim=-1, clear=True)
                T.copy(logits, L[n * 64, 0])

    return main


@pytest.mark.parametrize(
    ("name", "stages", "room"), [("sm_80", 2, 21000), ("sm_90a", 2, 21000), ("sm_80", 0, 12000)]
)
def test_what_each_trip_writes_anew_shares_bytes_with_what_the_trip_is_done_with(name, stages, room):
    rng = np.random.default_rng(5)
    q, k = (rng.integers(-2, 3, shape).astype(np.float16) for shape in ((32, 32), (256, 32)))
    w = rng.integers(-3, 4, (4, 8)).astype(np.float32)
    products = np.maximum((k.astype(np.float32) @ q.T.astype(np.float32)).reshape(256, 4, 8), 0)
    found = run(scores(stages), room, name, q, k, w, out=np.zeros((256, 4), np.float32))
    np.testing.assert_array_equal(found, (products * w).sum(-1))


def test_what_does_not_fit_even_so_is_refused_with_both_numbers():
    with pytest.raises(CompileError, match="a block of sm_90a has 8000"):
        lower(elaborated(scores(2), [], {}, {}, {}), small("sm_90a", 8000))


@T.prim_func
def carried(X: T.Tensor((4, 1024), "float32"), Y: T.Tensor((4, 1024), "float32")):
    """Row n of Y is row n of X and twice that of the row before, both turned round."""
    with T.Kernel(1, threads=64):
        old, new = T.alloc_shared((1024,), "float32"), T.alloc_shared((1024,), "float32")
        last = T.alloc_shared((1024,), "float32")
        T.clear(old)
        for n in T.serial(4):
            for i in T.Parallel(1024):
                new[i] = X[n, i]
            for i in T.Parallel(1024):
                Y[n, i] = new[1023 - i] + 2 * old[1023 - i]
            for i in T.Parallel(1024):
                last[1023 - i] = new[1023 - i]
            for i in T.Parallel(1024):
                old[i] = last[i]


@pytest.mark.parametrize("name", TARGETS)
def test_what_a_trip_leaves_to_the_next_one_keeps_its_bytes(name):
    x = np.random.default_rng(1).standard_normal((4, 1024)).astype(np.float32)
    found = run(carried, 12288, name, x, out=np.zeros_like(x))
    before = np.concatenate([np.zeros((1, 1024), np.float32), x[:-1]])
    np.testing.assert_array_equal(found, x[:, ::-1] + 2 * before[:, ::-1])


@T.prim_func
def together(X: T.Tensor((1024,), "float32"), Y: T.Tensor((2, 1024), "float32")):
    """One loop reads the one tile for the last time and writes the other for the first time."""
    with T.Kernel(1, threads=64):
        s, t = T.alloc_shared((1024,), "float32"), T.alloc_shared((1024,), "float32")
        T.copy(X, s)
        for i in T.Parallel(1024):
            Y[0, i] = s[1023 - i]
            t[i] = X[i] + 1
        for i in T.Parallel(1024):
            Y[1, i] = t[1023 - i]


@pytest.mark.parametrize("name", TARGETS)
def test_tiles_that_one_loop_names_share_no_bytes(name):
    x = np.arange(1024, dtype=np.float32)
    found = run(together, 8192, name, x, out=np.zeros((2, 1024), np.float32))
    np.testing.assert_array_equal(found, [x[::-1], x[::-1] + 1])


@T.prim_func
def grouped(X: T.Tensor((2, 1024), "float32"), Y: T.Tensor((4, 1024), "float32")):
    """Two groups beside each other, each with two tiles one after the other."""
    with T.Kernel(1, threads=256):
        s, t = T.alloc_shared((1024,), "float32"), T.alloc_shared((1024,), "float32")
        u, v = T.alloc_shared((1024,), "float32"), T.alloc_shared((1024,), "float32")
        with T.ws(0):
            for i in T.Parallel(1024):
                s[i] = X[0, i]
            for i in T.Parallel(1024):
                Y[0, i] = s[1023 - i]
            for i in T.Parallel(1024):
                t[i] = X[0, i] + 1
            for i in T.Parallel(1024):
                Y[1, i] = t[1023 - i]
        with T.ws(1):
            for i in T.Parallel(1024):
                u[i] = X[1, i]
            for i in T.Parallel(1024):
                Y[2, i] = u[1023 - i]
            for i in T.Parallel(1024):
                v[i] = X[1, i] + 1
            for i in T.Parallel(1024):
                Y[3, i] = v[1023 - i]


@pytest.mark.parametrize("name", TARGETS)
def test_tiles_of_one_group_take_turns_and_those_of_two_do_not(name):
    x = np.random.default_rng(2).standard_normal((2, 1024)).astype(np.float32)
    found = run(grouped, 8192 + 1024, name, x, out=np.zeros((4, 1024), np.float32))
    wanted = np.stack([x[0], x[0] + 1, x[1], x[1] + 1])[:, ::-1]
    np.testing.assert_array_equal(found, wanted)
    with pytest.raises(CompileError, match="shared tiles take 8192 bytes"):
        lower(elaborated(grouped, [], {}, {}, {}), small(name, 8000))


def test_rings_leave_room_for_a_fragment_that_threads_shift():
    """The fragment passes through shared memory; rings of eight stages had left it no room."""

    @T.prim_func
    def main(
        A: T.Tensor((256, 128), "float32"),
        B: T.Tensor((256, 32), "int32"),
        C: T.Tensor((128, 32), "float32"),
        D: T.Tensor((128, 32), "uint64"),
    ):
        with T.Kernel(1, threads=256):
            acc = T.alloc_fragment((128, 32), "float32")
            shifted = T.alloc_fragment((128, 32), "uint64")
            T.clear(acc)
            T.fill(shifted, 3)
            for i, j in T.Parallel(128, 32):
                shifted[i + 1, j] = T.cast(i, "uint64")
            A_shared = T.alloc_shared((64, 128), "float16")
            B_shared = T.alloc_shared((64, 32), "float16")
            for ko in T.Pipelined(4, num_stages=3):
                T.copy(A[ko * 64, 0], A_shared)
                T.copy(B[ko * 64, 0], B_shared)
                T.gemm(A_shared, B_shared, acc, transpose_A=True)
            T.copy(acc, C)
            T.copy(shifted, D)

    numbers = np.random.default_rng(6)
    a = numbers.integers(-2, 3, (256, 128)).astype(np.float32)
    agree(main, a, numbers.integers(-2, 3, (256, 32)).astype(np.int32), targets=("sm_90a",))


def test_stages_beyond_what_fits_are_left_out():
    @T.prim_func
    def main(A: T.Tensor((64, 256), "float16"), B: T.Tensor((64, 256), "float16"),
             C: T.Tensor((64, 64), "float32")):  # fmt: skip
        with T.Kernel(1, threads=128):
            a, b = T.alloc_shared((64, 32), "float16"), T.alloc_shared((64, 32), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.clear(c)
            for k in T.Pipelined(8, num_stages=5):
                T.copy(A[0, k * 32], a)
                T.copy(B[0, k * 32], b)
                T.gemm(a, b, c, transpose_B=True)
            T.copy(c, C)

    given = [np.random.default_rng(seed).integers(-3, 4, (64, 256)).astype(np.float16) for seed in range(2)]
    out = np.zeros((64, 64), np.float32)
    run(main, 3 * 8192 + 512, "sm_80", *given, out=out)
    np.testing.assert_array_equal(out, given[0].astype(np.float32) @ given[1].astype(np.float32).T)
    (launch,) = lower(elaborated(main, given, {}, {}, {}), small("sm_80", 3 * 8192 + 512)).launches
    assert any("3 stages in place of 5" in note for note in launch.notes)
    run(main, 8192 + 512, "sm_80", *given, out=out)
    np.testing.assert_array_equal(out, given[0].astype(np.float32) @ given[1].astype(np.float32).T)
    (launch,) = lower(elaborated(main, given, {}, {}, {}), small("sm_80", 8192 + 512)).launches
    assert any("no two stages" in str(road.loss) for road in launch.roads if road.loss)
    with pytest.raises(CompileError, match="shared tiles take"):
        lower(elaborated(main, given, {}, {}, {}), small("sm_80", 4096 + 512))


def test_stages_leave_room_for_operands_that_are_converted():
    @T.prim_func
    def main(A: T.Tensor((64, 256), "float8_e4m3fn"), B: T.Tensor((64, 256), "float8_e4m3fn"),
             C: T.Tensor((64, 64), "float32")):  # fmt: skip
        with T.Kernel(1, threads=128):
            a, b = T.alloc_shared((64, 32), A.dtype), T.alloc_shared((64, 32), A.dtype)
            c = T.alloc_fragment((64, 64), "float32")
            T.clear(c)
            for k in T.Pipelined(8, num_stages=4):
                T.copy(A[0, k * 32], a)
                T.copy(B[0, k * 32], b)
                T.gemm(a, b, c, transpose_B=True)
            T.copy(c, C)

    (launch,) = lower(elaborated(main, [], {}, {}, {}), small("sm_80", 3 * 4096 + 8192 + 512)).launches
    assert any("3 stages in place of 4" in note for note in launch.notes)


def test_stages_leave_room_for_what_a_trip_makes():
    """The tile that a loop fills between loads and product is there beside all stages."""

    @T.prim_func
    def main(A: T.Tensor((64, 256), "float16"), B: T.Tensor((64, 256), "int8"),
             C: T.Tensor((64, 64), "float32")):  # fmt: skip
        with T.Kernel(1, threads=128):
            a, b = T.alloc_shared((64, 32), "float16"), T.alloc_shared((64, 32), "int8")
            made, c = T.alloc_shared((64, 32), "float16"), T.alloc_fragment((64, 64), "float32")
            T.clear(c)
            for k in T.Pipelined(8, num_stages=4):
                T.copy(A[0, k * 32], a)
                T.copy(B[0, k * 32], b)
                for i, j in T.Parallel(64, 32):
                    made[i, j] = b[i, j]
                T.gemm(a, made, c, transpose_B=True)
            T.copy(c, C)

    numbers = np.random.default_rng(7).integers
    given = [numbers(-3, 4, (64, 256)).astype(dtype) for dtype in ("float16", "int8")]
    out = np.zeros((64, 64), np.float32)
    run(main, 4 * 6144 + 512, "sm_80", *given, out=out)
    np.testing.assert_array_equal(out, given[0].astype(np.float32) @ given[1].astype(np.float32).T)


def weighted(width, keys, idle):
    """Y = exp2(Q K^T / 64) K of 64 rows by warps side by side, whose last tile of keys is cut."""

    @T.prim_func
    def kernel(
        Q: T.Tensor((64, width), "float16"),
        K: T.Tensor((keys, width), "float16"),
        Y: T.Tensor((64, width), "float16"),
    ):
        with T.Kernel(1, threads=256):
            q, k = T.alloc_shared((64, width), "float16"), T.alloc_shared((64, width), "float16")
            T.alloc_shared((64, idle), "float16")
            s, p = T.alloc_fragment((64, 64), "float32"), T.alloc_fragment((64, 64), "float16")
            o = T.alloc_fragment((64, width), "float32")
            T.copy(Q, q)
            T.clear(o)
            for n in T.Pipelined(T.ceildiv(keys, 64), num_stages=2):
                T.copy(K[n * 64, 0], k)
                T.gemm(q, k, s, transpose_B=True, policy=T.GemmWarpPolicy.FullCol, clear_accum=True)
                for i, j in T.Parallel(64, 64):
                    s[i, j] = T.if_then_else(n * 64 + j < keys, s[i, j], -T.infinity("float32"))
                for i, j in T.Parallel(64, 64):
                    p[i, j] = T.exp2(s[i, j] / 64)
                T.gemm(p, k, o, policy=T.GemmWarpPolicy.FullCol)
            T.copy(o, Y)

    return kernel


def test_products_of_one_fragment_read_it_from_one_tile():
    """Trips that are whole and the last one have a product each; tiles that nothing uses take no room."""
    rng = np.random.default_rng(4)
    q, k = ((rng.standard_normal((rows, 128)) / 2).astype(np.float16) for rows in (64, 150))
    agree(weighted(128, 150, 64), q, k, targets=("sm_90a",), rtol=2e-2, atol=2e-2)
    tensors = [np.zeros((rows, 512), np.float16) for rows in (64, 150)]
    (launch,) = lower(
        elaborated(weighted(512, 150, 512), tensors, None, {}, {}), parse_target("sm_90a")
    ).launches
    stored = [str(alloc.buffer.name) for alloc in shared_tiles(launch.body)]
    assert len([name for name in stored if name.startswith("p_shared")]) == 1
