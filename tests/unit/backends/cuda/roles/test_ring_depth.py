"""How deep rings are: as deep as tensor cores want, where shared memory has room."""

from __future__ import annotations

import pytest

import tilec.language as T
from tilec.backends.cuda.analysis.pipelines.ring_depth import trip_clocks, wanted_stages
from tilec.backends.cuda.nodes import GiveBack, ProductsWait
from tilec.backends.pipeline import lower
from tilec.ir.nodes import Alloc, For, Pipelined, walk
from tilec.language.frontend.elaborate import elaborate
from tilec.targets import parse_target

HOPPER = parse_target("sm_90a")


def product(
    rows=128,
    columns=128,
    depth=64,
    stages=2,
    threads=256,
    dtype="float16",
    sums="float32",
    scale="",
    config=None,
):
    """A product in a loop of ``stages`` stages; threads change A ("operand") or its "sums" in every trip."""

    @T.prim_func
    def kernel(
        A: T.Tensor((2048, 2048), dtype),
        B: T.Tensor((2048, 2048), dtype),
        C: T.Tensor((2048, 2048), sums),
    ):
        with T.Kernel(2048 // columns, 2048 // rows, threads=threads) as (bx, by):
            As, Bs = T.alloc_shared((rows, depth), dtype), T.alloc_shared((columns, depth), dtype)
            acc = T.alloc_fragment((rows, columns), sums)
            T.clear(acc)
            for k in T.Pipelined(2048 // depth, num_stages=stages):
                T.copy(A[by * rows, k * depth], As)
                T.copy(B[bx * columns, k * depth], Bs)
                if scale == "operand":
                    for i, j in T.Parallel(rows, depth):
                        As[i, j] = As[i, j] * 2
                T.gemm(As, Bs, acc, transpose_B=True)
                if scale == "sums":
                    for i, j in T.Parallel(rows, columns):
                        acc[i, j] = acc[i, j] * 2
            T.copy(acc, C[by * rows, bx * columns])

    return elaborate(kernel, name="kernel", dims={}, args={}, config=config or {})


def gradient(late=1):
    """A trip's keys and values, and ``late`` products of what is computed from the first two: with the keys,
    and with the values."""

    @T.prim_func
    def kernel(
        Q: T.Tensor((2048, 128), "float16"),
        K: T.Tensor((2048, 128), "float16"),
        V: T.Tensor((2048, 128), "float16"),
        sums: T.Tensor((2048,), "float32"),
        dQ: T.Tensor((2048, 128), "float32"),
    ):
        with T.Kernel(16, threads=256) as bx:
            Qs = T.alloc_shared((128, 128), "float16")
            Ks, Vs = T.alloc_shared((64, 128), "float16"), T.alloc_shared((64, 128), "float16")
            S, dP = T.alloc_fragment((128, 64), "float32"), T.alloc_fragment((128, 64), "float32")
            dS, dq = T.alloc_fragment((128, 64), "float16"), T.alloc_fragment((128, 128), "float32")
            rows = T.alloc_fragment((128,), "float32")
            T.copy(Q[bx * 128, 0], Qs)
            T.copy(sums[bx * 128], rows)
            T.clear(dq)
            for k in T.Pipelined(2 * bx + 2, num_stages=2):
                T.copy(K[k * 64, 0], Ks)
                T.copy(V[k * 64, 0], Vs)
                T.gemm(Qs, Ks, S, transpose_B=True, clear_accum=True)
                T.gemm(Qs, Vs, dP, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(128, 64):
                    weight = T.exp2(S[i, j])
                    dS[i, j] = weight * (dP[i, j] - rows[i])
                T.gemm(dS, Ks, dq)
                if late == 2:
                    T.gemm(dS, Vs, dq)
            T.copy(dq, dQ[bx * 128, 0])

    return elaborate(kernel, name="kernel", dims={}, args={}, config={})


def loop_of(kernel):
    return next(stmt for stmt in walk(kernel.launches[0].body) if isinstance(stmt, Pipelined))


def stages_of(**form) -> set[int]:
    """The stages of the rings of a product."""
    (launch,) = lower(product(**form), HOPPER, until="split_roles").launches
    tiles = [stmt.buffer for stmt in walk(launch.body) if isinstance(stmt, Alloc)]
    return {int(tile.shape[0]) for tile in tiles if tile.scope() == "shared.dyn" and len(tile.shape) > 2}


@pytest.mark.parametrize(
    ("tile", "dtype", "clocks"),
    [
        ((128, 128, 64), "float16", 512),
        ((128, 256, 64), "bfloat16", 1024),
        ((64, 64, 128), "float8_e4m3fn", 128),
    ],
)
def test_clocks_are_operations_over_the_rate_of_tensor_cores(tile, dtype, clocks):
    rows, columns, depth = tile
    assert trip_clocks(loop_of(product(rows, columns, depth, dtype=dtype)).body, HOPPER) == clocks


@pytest.mark.parametrize(("depth", "blocks", "stages"), [(64, 1, 4), (32, 1, 6), (32, 2, 4), (128, 1, 3)])
def test_short_trips_want_more_stages(depth, blocks, stages):
    assert wanted_stages(loop_of(product(depth=depth)).body, HOPPER, blocks) == stages


def test_nothing_is_wanted_where_nothing_is_multiplied():
    assert wanted_stages(loop_of(product()).body[:2], HOPPER) == 0


@pytest.mark.parametrize(("asked", "made"), [(2, 5), (3, 5), (7, 7)])
def test_a_product_has_the_stages_asked_for_at_least(asked, made):
    assert stages_of(stages=asked) == {made}


def test_results_keep_their_room():
    # three stages of 72 KiB fit, but leave two warpgroups less than two staging buffers each
    assert stages_of(columns=160, depth=128) == {2}


def test_launches_that_no_strategy_takes_get_deep_rings_too():  # sums of float16
    assert stages_of(sums="float16") == {5}


@pytest.mark.parametrize(("scale", "made"), [("operand", {4}), ("sums", {2})])  # two tiles in 48 KiB
def test_trips_in_which_threads_change_sums_keep_what_is_asked_for(scale, made):
    assert stages_of(scale=scale) == made


def test_blocks_that_share_a_multiprocessor_still_do():
    # 24 KiB of 227: nine blocks' tiles fit as they are, a deeper ring may not take their room
    assert stages_of(rows=64, columns=32, threads=128, sums="float16") == {2}


@pytest.mark.parametrize(("asked", "key", "made"), [(2, 3, 3), (3, 2, 3), (2, 99, 6)])
@pytest.mark.parametrize(("sums", "most"), [("float32", 6), ("float16", 5)])
def test_a_schedule_key_says_how_many(asked, key, made, sums, most):
    """Results of sums that no strategy takes have a tile of 32 KiB for each of two warpgroups."""
    assert stages_of(stages=asked, sums=sums, config={"stages": key}) == {min(made, most)}


@pytest.mark.parametrize(("late", "stages"), [(1, {"Ks": 3, "Vs": 2}), (2, {"Ks": 2, "Vs": 2})])
def test_a_tile_that_two_trips_read_at_a_time_gets_a_stage_more(late, stages):
    """Where the last product of a trip alone stands behind arithmetic."""
    (launch,) = lower(gradient(late), HOPPER, until="split_roles").launches
    tiles = {stmt.buffer for stmt in walk(launch.body) if isinstance(stmt, Alloc)}
    rings = {str(tile.name): int(tile.shape[0]) for tile in tiles if len(tile.shape) > 2}
    assert {name: count for name, count in rings.items() if name in stages} == stages


def test_a_stage_of_the_trip_before_goes_back_in_front_of_the_wait_for_products_of_this_one():
    (launch,) = lower(gradient(), HOPPER, until="place_product_waits").launches
    (loop,) = (stmt for stmt in walk(launch.body) if isinstance(stmt, For) and _waits(stmt))
    assert _waits(loop) == [1, "Ks_empty", 0, "Vs_empty"]


def _waits(loop: For) -> list[object]:
    """How many products each wait of a trip leaves under way, and the barriers of stages that go back."""
    return [
        stmt.pending if isinstance(stmt, ProductsWait) else str(stmt.barrier.name)
        for stmt in loop.body
        if isinstance(stmt, (ProductsWait, GiveBack))
    ]


def test_small_stages_leave_room_for_what_passes_through_shared_memory_later():
    """Later passes give both fragments a tile: their elements go to other threads."""

    @T.prim_func
    def kernel(B: T.Tensor((4096, 64), "float8_e4m3fn"), C: T.Tensor((16, 64), "float32")):
        with T.Kernel(1, threads=256):
            a, b = T.alloc_shared((16, 64), "float8_e4m3fn"), T.alloc_shared((64, 64), "float8_e4m3fn")
            sums, shifted = T.alloc_fragment((16, 64), "float32"), T.alloc_fragment((16, 64), "uint8")
            T.clear(sums)
            T.fill(shifted, 3)
            for k in T.Pipelined(64):
                for i, j in T.Parallel(16, 64):
                    a[i, j] = 1
                T.copy(B[k * 64, 0], b)
                T.gemm(a, b, sums, policy=T.GemmWarpPolicy.FullCol)
            for i, j in T.Parallel(16, 64):
                shifted[i, j + 1] = 1
            for i, j in T.Parallel(16, 64):
                C[i, j] = sums[i, j] + shifted[i, j]

    lower(elaborate(kernel, name="kernel", dims={}, args={}, config={}), HOPPER)


def pooled(columns, stages):
    """The larger of two neighbouring rows of a product, which other threads hold."""

    @T.prim_func
    def kernel(
        A: T.Tensor((4096, 1024), "float16"),
        B: T.Tensor((4096, 1024), "float16"),
        Y: T.Tensor((2048, 4096), "float16"),
    ):
        with T.Kernel(4096 // columns, 4096 // 128, threads=256) as (bx, by):
            As, Bs = T.alloc_shared((128, 64), "float16"), T.alloc_shared((columns, 64), "float16")
            acc = T.alloc_fragment((128, columns), "float32")
            pairs = T.alloc_fragment((64, columns), "float16")
            T.clear(acc)
            for k in T.Pipelined(1024 // 64, num_stages=stages):
                T.copy(A[by * 128, k * 64], As)
                T.copy(B[bx * columns, k * 64], Bs)
                T.gemm(As, Bs, acc, transpose_B=True)
            for i, j in T.Parallel(64, columns):
                pairs[i, j] = T.max(acc[2 * i, j], acc[2 * i + 1, j])
            T.copy(pairs, Y[by * 64, bx * columns])

    return elaborate(kernel, name="kernel", dims={}, args={}, config={})


@pytest.mark.parametrize(("columns", "asked", "left"), [(256, 3, 2), (256, 4, 2), (128, 4, 4)])
def test_rings_leave_sums_room_to_pass_to_other_threads(columns, asked, left):
    stmts = list(walk(lower(pooled(columns, asked), HOPPER).body))
    rings = {tile for stmt in stmts if isinstance(stmt, GiveBack) for tile in stmt.tiles}
    assert {int(tile.shape[0]) for tile in rings} == {left}


def dequantised(turned):
    """Weights of four bits, stored (K, N), or (N, K) where they are ``turned``, that threads convert for the
    second operand of each trip's product."""
    shape, part = ((4096, 2048), (128, 32)) if turned else ((4096, 2048), (64, 64))

    @T.prim_func
    def kernel(
        A: T.Tensor((4096, 4096), "float16"),
        W: T.Tensor(shape, "uint8"),
        Y: T.Tensor((4096, 4096), "float16"),
    ):
        with T.Kernel(4096 // 128, 4096 // 128, threads=256) as (bx, by):
            As, Ws = T.alloc_shared((128, 64), "float16"), T.alloc_shared(part, "uint8")
            Bs = T.alloc_shared((128, 64) if turned else (64, 128), "float16")
            acc = T.alloc_fragment((128, 128), "float32")
            T.clear(acc)
            for k in T.Pipelined(4096 // 64, num_stages=4):
                T.copy(A[by * 128, k * 64], As)
                if turned:
                    T.copy(W[bx * 128, k * 32], Ws)
                else:
                    T.copy(W[k * 64, bx * 64], Ws)
                for i, j in T.Parallel(*Bs.shape):
                    Bs[i, j] = T.cast((Ws[i, j // 2] >> (j % 2 * 4)) & 15, "float16")
                T.gemm(As, Bs, acc, transpose_B=turned)
            T.copy(acc, Y[by * 128, bx * 128])

    return elaborate(kernel, name="kernel", dims={}, args={}, config={})


@pytest.mark.parametrize("turned", [False, True])
def test_operands_that_cannot_stay_in_registers_have_room_for_two_versions(turned):
    (launch,) = lower(dequantised(turned), HOPPER).launches
    assert any("Bs has two versions" in note for note in launch.notes) != turned
    assert any("Bs stays in registers" in note for note in launch.notes) == turned
