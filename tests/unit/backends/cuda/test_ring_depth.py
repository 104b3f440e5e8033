"""How deep rings are: as deep as tensor cores want, where shared memory has room."""

from __future__ import annotations

import pytest

import tilec.language as T
from tilec.backends.cuda.analysis.ring_depth import trip_clocks, wanted_stages
from tilec.backends.pipeline import lower
from tilec.ir.nodes import Alloc, Pipelined, walk
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
    assert stages_of(sums="float16") == {4}


@pytest.mark.parametrize(("scale", "made"), [("operand", {3}), ("sums", {2})])  # two tiles in 48 KiB
def test_trips_in_which_threads_change_sums_keep_what_is_asked_for(scale, made):
    assert stages_of(scale=scale) == made


def test_blocks_that_share_a_multiprocessor_still_do():
    # 24 KiB of 227: nine blocks' tiles fit as they are, a deeper ring may not take their room
    assert stages_of(rows=64, columns=32, threads=128, sums="float16") == {2}


@pytest.mark.parametrize(("asked", "key", "made"), [(2, 3, 3), (3, 2, 3), (2, 99, 6)])
@pytest.mark.parametrize("sums", ["float32", "float16"])
def test_a_schedule_key_says_how_many(asked, key, made, sums):
    assert stages_of(stages=asked, sums=sums, config={"stages": key}) == {made}
