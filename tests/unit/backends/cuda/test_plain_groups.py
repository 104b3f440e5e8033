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
