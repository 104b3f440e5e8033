"""Warpgroups that take tiles in turns, where blocks walk over tiles and trips do nothing but multiply."""

from __future__ import annotations

import numpy as np
import pytest

import tilec.language as T
from tilec.backends.cuda.nodes import EachTile, GiveBack
from tilec.backends.pipeline import lower
from tilec.emulate import EmulatedKernel
from tilec.ir.guards import Guard
from tilec.ir.nodes import Kernel, Launch, walk
from tilec.ir.nodes.barriers import AllocBarrier, Group, WaitPhase
from tilec.language.frontend.elaborate import elaborate
from tilec.targets import parse_target

SM90A = parse_target("sm_90a")


def product(
    rows=64,
    columns=64,
    depth=64,
    threads=256,
    beside=False,
    triangular=False,
    walked=False,
    second=False,
    holes=False,
    extents=None,
    config=None,
) -> Kernel:
    """C = A B into sums of float16, which no strategy takes. ``beside``: threads change the sums in each
    trip; ``triangular``: trips of a tile follow from its row; ``walked``: by blocks that go over tiles in a
    loop of their author's; ``second``: a second loop adds the products of the first 64 of K once more;
    ``holes``: every third tile of a diagonal is left out."""

    @T.macro
    def tile(A, B, C, by, bx):
        K = A.shape[1]
        As, Bs = T.alloc_shared((rows, depth), "float16"), T.alloc_shared((depth, columns), "float16")
        acc = T.alloc_fragment((rows, columns), "float16")
        T.clear(acc)
        for k in T.Pipelined(by + 1 if triangular else T.ceildiv(K, depth), num_stages=3):
            T.copy(A[by * rows, k * depth], As)
            T.copy(B[k * depth, bx * columns], Bs)
            T.gemm(As, Bs, acc)
            if beside:
                for i, j in T.Parallel(rows, columns):
                    acc[i, j] = acc[i, j] * 2
        if second:
            for k in T.Pipelined(64 // depth, num_stages=2):
                T.copy(A[by * rows, k * depth], As)
                T.copy(B[k * depth, bx * columns], Bs)
                T.gemm(As, Bs, acc)
        T.copy(acc, C[by * rows, bx * columns])

    def build(M, N, K):
        @T.prim_func
        def grid(
            A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float16")
        ):
            with T.Kernel(T.ceildiv(N, columns), T.ceildiv(M, rows), threads=threads) as (bx, by):
                if holes:
                    if (bx + by) % 3 != 1:
                        tile(A, B, C, by, bx)
                else:
                    tile(A, B, C, by, bx)

        @T.prim_func
        def loop(
            A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float16")
        ):
            tiles = T.ceildiv(N, columns) * T.ceildiv(M, rows)
            with T.Kernel(2, threads=threads) as block:
                for w in range(T.ceildiv(tiles, 2)):
                    number = w * 2 + block
                    if number < tiles:
                        tile(A, B, C, number // T.ceildiv(N, columns), number % T.ceildiv(N, columns))

        return loop if walked else grid

    open_dims = {"M": Guard(), "N": Guard(div=8), "K": Guard(div=8)}
    pinned = {name: Guard(eq=size) for name, size in zip("MNK", extents or (), strict=False)}
    dims = open_dims | pinned
    return elaborate(build, name="kernel", dims=dims, args={}, config=config or {})


def roles(kernel: Kernel) -> Launch:
    return lower(kernel, SM90A, until="split_roles").launches[0]


def turns(launch: Launch) -> list[tuple[int, int]]:
    """The turn of each group that computes, and how many turns there are."""
    groups = [stmt for stmt in launch.body if isinstance(stmt, Group)]
    computing = [group for group in groups if any(isinstance(stmt, GiveBack) for stmt in walk(group.body))]
    tiles = (stmt for group in computing for stmt in group.body if isinstance(stmt, EachTile))
    return [(each.turn, each.turns) for each in tiles]


@pytest.mark.parametrize("threads", [128, 256])
def test_each_warpgroup_has_every_second_tile(threads):
    """There are two of them where the author has one."""
    launch = roles(product(threads=threads))
    assert turns(launch) == [(0, 2), (1, 2)]
    assert any("in turns" in str(road) for road in launch.roads)


def test_a_group_hears_of_its_turn_and_hands_it_on():
    launch = roles(product())
    (order,) = (
        stmt.buffer for stmt in launch.body if isinstance(stmt, AllocBarrier) and stmt.buffer.name == "turns"
    )
    for group in launch.body:
        if not isinstance(group, Group) or group.first == 256:
            continue
        stmts = list(walk(group.body))
        turn = group.first // 128
        waits = [stmt for stmt in stmts if isinstance(stmt, WaitPhase)]
        given = [stmt for stmt in stmts if isinstance(stmt, GiveBack) and stmt.barrier.same_as(order)]
        assert waits[0].barrier.same_as(order)
        assert int(waits[0].index) == turn
        assert {int(stmt.index) for stmt in given} == {1 - turn}


@pytest.mark.parametrize(
    "changed",
    [
        {"beside": True},
        {"triangular": True},
        {"rows": 128},
        {"rows": 256, "columns": 256},
        {"columns": 32},
        {"extents": (512, 512, 512)},
        {"config": {"pingpong": False}},
    ],
    ids=["arithmetic", "unlike", "high", "registers", "narrow", "one wave", "asked"],
)
def test_warpgroups_share_tiles_elsewhere(changed):
    assert all(count == 1 for _, count in turns(roles(product(**changed))))


def test_tiles_behind_a_guard_fall_to_those_who_find_them_next():
    launch = roles(product(holes=True))
    assert turns(launch) == [(0, 1), (0, 1)]
    assert any("in turns" in str(road) for road in launch.roads)


@pytest.mark.parametrize("target", ["compute_90", "sm_100a", "sm_120f"])
def test_warpgroups_share_tiles_where_products_are_those_of_warps_or_sums_lie_apart(target):
    (launch,) = lower(product(), parse_target(target), until="split_roles").launches
    assert all(count == 1 for _, count in turns(launch))


def test_a_loop_over_tiles_of_an_author_is_one_too():
    assert turns(roles(product(walked=True))) == [(0, 2), (1, 2)]


def test_short_trips_are_joined_first():
    launch = roles(product(depth=32))
    assert any("2 trips" in note for note in launch.notes)


@pytest.mark.parametrize(
    ("kernel", "dims"),
    [
        ({}, (64, 64, 128)),
        ({}, (300, 136, 200)),
        ({}, (320, 128, 64)),
        ({"walked": True}, (200, 192, 264)),
        ({"second": True}, (200, 192, 136)),
        ({"depth": 32}, (136, 192, 104)),
        ({"threads": 384, "rows": 192, "columns": 128}, (600, 128, 136)),
        ({"threads": 128}, (200, 192, 136)),
        ({"holes": True}, (300, 200, 136)),
    ],
    ids=[
        "one tile",
        "odd",
        "one trip",
        "walked",
        "two loops",
        "short trips",
        "three groups",
        "one group",
        "holes",
    ],
)
def test_results_are_those_of_every_tile(kernel, dims):
    M, N, K = dims
    rng = np.random.default_rng(7)
    A, B = (rng.integers(-2, 3, shape).astype(np.float16) for shape in ((M, K), (K, N)))
    C = np.zeros((M, N), np.float16)
    EmulatedKernel(product(**kernel), SM90A)([A, B, C], {"M": M, "N": N, "K": K})
    wanted = A @ B + (A[:, :64] @ B[:64] if kernel.get("second") else 0)
    if kernel.get("holes"):
        wanted[(np.arange(M)[:, None] // 64 + np.arange(N) // 64) % 3 == 1] = 0
    np.testing.assert_array_equal(C, wanted)
