"""Rings that authors write by hand become loops, and get the roles of the target."""

from __future__ import annotations

import pytest

import tilec.language as T
from tilec.backends.cuda.matmul.nodes import MatmulRoles
from tilec.backends.cuda.warp_roles.plain_groups import without_groups
from tilec.backends.cuda.warp_roles.strategy import roles_of
from tilec.backends.pipeline import lower
from tilec.ir.nodes import Launch, Pipelined, walk
from tilec.language.frontend.elaborate import elaborate
from tilec.targets import parse_target


def ring(stages, columns, scale=False):
    """A producer and a consumer of ``stages`` stages; with ``scale`` the consumer reads the tile itself,
    too."""

    @T.prim_func
    def kernel(
        A: T.Tensor((128, 256), "float16"),
        B: T.Tensor((256, columns), "float16"),
        C: T.Tensor((128, columns), "float32"),
    ):
        with T.Kernel(2, threads=256) as by:
            As = T.alloc_shared((stages, 64, 64), "float16")
            Bs = T.alloc_shared((stages, 64, columns), "float16")
            acc = T.alloc_fragment((64, columns), "float32")
            full, free = T.alloc_barrier([128] * stages), T.alloc_barrier([128] * stages)
            with T.ws(0):
                for k in T.serial(4):
                    T.barrier_wait(free[k % stages], (k // stages + 1) % 2)
                    T.copy(A[by * 64, k * 64], As[k % stages, :, :])
                    T.copy(B[k * 64, 0], Bs[k % stages, :, :])
                    T.barrier_arrive(full[k % stages])
            with T.ws(1):
                T.clear(acc)
                for k in T.serial(4):
                    T.barrier_wait(full[k % stages], k // stages % 2)
                    T.gemm(As[k % stages, :, :], Bs[k % stages, :, :], acc)
                    if scale:
                        for i, j in T.Parallel(64, columns):
                            acc[i, j] = acc[i, j] * As[k % stages, i, 0]
                    T.barrier_arrive(free[k % stages])
                T.copy(acc, C[by * 64, 0])

    return kernel


def lowered(kernel, until=None, **options) -> Launch:
    made = elaborate(kernel, name="kernel", dims={}, args={}, config=options)
    (launch,) = lower(made, parse_target("sm_90a"), until=until).launches
    return launch


@pytest.mark.parametrize("stages", [1, 2, 4])
def test_a_ring_gets_roles(stages):
    launch = lowered(ring(stages, 64))
    roles = roles_of(launch, MatmulRoles)
    assert roles.roles.consumers == 1
    assert any("those that tilec chooses" in note for note in launch.notes)


def one_buffer(stages: int):
    """A producer and a consumer of one buffer, in one loop that asks for ``stages``."""

    @T.prim_func
    def kernel(
        A: T.Tensor((128, 256), "float16"),
        B: T.Tensor((256, 64), "float16"),
        C: T.Tensor((128, 64), "float32"),
    ):
        with T.Kernel(2, threads=256) as by:
            As, Bs = T.alloc_shared((64, 64), "float16"), T.alloc_shared((64, 64), "float16")
            acc = T.alloc_fragment((64, 64), "float32")
            full, free = T.alloc_barrier(128), T.alloc_barrier(128)
            with T.ws(1):
                T.clear(acc)
            for k in T.Pipelined(4, num_stages=stages):
                with T.ws(0):
                    T.barrier_wait(free, (k + 1) % 2)
                    T.tma_copy(A[by * 64, k * 64], As, barrier=full)
                    T.tma_copy(B[k * 64, 0], Bs, barrier=full)
                    T.barrier_arrive(full)
                with T.ws(1):
                    T.barrier_wait(full, k % 2)
                    T.gemm(As, Bs, acc)
                    T.barrier_arrive(free)
            with T.ws(1):
                T.copy(acc, C[by * 64, 0])

    return kernel


@pytest.mark.parametrize(("stages", "made"), [(0, 2), (1, 2), (3, 3)])
def test_a_buffer_that_groups_share_gets_two_stages_at_least(stages, made):
    kernel = elaborate(one_buffer(stages), name="kernel", dims={}, args={}, config={})
    launch = without_groups(kernel, kernel.launches[0])
    assert [stmt.num_stages for stmt in walk(launch.body) if isinstance(stmt, Pipelined)] == [made]


def test_what_is_no_loop_of_products_keeps_its_groups():
    launch = lowered(ring(2, 64, scale=True))
    assert launch.strategy is None
    assert launch.threads == (256, 1, 1)


def test_pass_configs_that_shut_roles_out_keep_groups():
    launch = lowered(ring(2, 64), pass_configs={"tl.disable_warp_specialized": True})
    assert launch.strategy is None


def by_bytes(first_in_front=False):
    """A ring whose barriers count bytes, which one thread announces; with ``first_in_front`` the consumer's
    first product stands in front of its loop."""

    @T.prim_func
    def kernel(
        A: T.Tensor((128, 256), "float16"),
        B: T.Tensor((256, 64), "float16"),
        C: T.Tensor((128, 64), "float32"),
    ):
        with T.Kernel(2, threads=256) as by:
            As, Bs = T.alloc_shared((2, 64, 64), "float16"), T.alloc_shared((2, 64, 64), "float16")
            acc = T.alloc_fragment((64, 64), "float32")
            full, free = T.alloc_barrier([1] * 2), T.alloc_barrier([128] * 2)
            tx = T.get_thread_binding()
            with T.ws(0):
                for k in T.serial(4):
                    T.barrier_wait(free[k % 2], (k // 2 + 1) % 2)
                    if tx == 0:
                        T.mbarrier_arrive_expect_tx(full[k % 2], 4 * 64 * 64)
                    T.tma_copy(A[by * 64, k * 64], As[k % 2, :, :], barrier=full[k % 2])
                    T.tma_copy(B[k * 64, 0], Bs[k % 2, :, :], barrier=full[k % 2])
            with T.ws(1):
                if first_in_front:
                    T.barrier_wait(full[0], 0)
                    T.gemm(As[0, :, :], Bs[0, :, :], acc, clear_accum=True)
                    T.barrier_arrive(free[0])
                else:
                    T.clear(acc)
                for k in T.serial(int(first_in_front), 4):
                    T.barrier_wait(full[k % 2], k // 2 % 2)
                    T.gemm(As[k % 2, :, :], Bs[k % 2, :, :], acc)
                    T.barrier_arrive(free[k % 2])
                T.copy(acc, C[by * 64, 0])

    return kernel


@pytest.mark.parametrize("first_in_front", [False, True])
def test_announced_bytes_and_first_trips_in_front_are_a_ring(first_in_front):
    launch = lowered(by_bytes(first_in_front))
    assert roles_of(launch, MatmulRoles).roles.consumers >= 1


def running_on(shared_name=True):
    """A persistent block whose ring runs on from tile to tile; each role counts the trips for itself. Without
    ``shared_name`` the roles find their tiles in other ways."""

    @T.prim_func
    def kernel(
        A: T.Tensor((512, 256), "float16"),
        B: T.Tensor((256, 64), "float16"),
        C: T.Tensor((512, 64), "float32"),
    ):
        with T.Kernel(3, threads=256) as worker:
            As, Bs = T.alloc_shared((2, 64, 64), "float16"), T.alloc_shared((2, 64, 64), "float16")
            acc = T.alloc_fragment((64, 64), "float32")
            full, free = T.alloc_barrier([128] * 2), T.alloc_barrier([128] * 2)
            tx = T.get_thread_binding()
            done = T.alloc_var("int32", 0)
            if tx < 128:
                for wave in T.serial(3):
                    tile = wave * 3 + worker
                    if tile < 8:
                        for k in T.serial(4):
                            at = (done + k) % 2
                            T.barrier_wait(free[at], ((done + k) // 2 + 1) % 2)
                            T.tma_copy(A[tile * 64, k * 64], As[at, :, :], barrier=full[at])
                            T.tma_copy(B[k * 64, 0], Bs[at, :, :], barrier=full[at])
                            T.barrier_arrive(full[at])
                        done = done + 4
            else:
                for wave in T.serial(3):
                    tile = wave * 3 + worker
                    if tile < 8 if shared_name else tile + 1 < 9:
                        T.clear(acc)
                        for k in T.serial(4):
                            at = (done + k) % 2
                            T.barrier_wait(full[at], (done + k) // 2 % 2)
                            T.gemm(As[at, :, :], Bs[at, :, :], acc)
                            T.barrier_arrive(free[at])
                        done = done + 4
                        T.copy(acc, C[tile * 64, 0])

    return kernel


def test_a_ring_that_runs_on_from_tile_to_tile_is_a_grid_of_tiles():
    launch = lowered(running_on())
    assert roles_of(launch, MatmulRoles)
    assert any("a grid of tiles" in note for note in launch.notes)


def test_tiles_that_roles_find_in_other_ways_keep_their_groups():
    assert lowered(running_on(shared_name=False)).strategy is None
