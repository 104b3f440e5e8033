"""T.copy_cluster: tiles that blocks of a cluster bring, and give to each other."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, elaborated

import tilec.language as T
from tilec.backends.cuda.codegen import images as cuda
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.errors import SourceValueError, UnsupportedError
from tilec.targets import native_target, parse_target


@T.prim_func
def given(
    A: T.Tensor((4, 16, 64), "float16"),
    Y: T.Tensor((4, 16, 64), "float16"),
    P: T.Tensor((4, 16, 64), "float16"),
):
    with T.Kernel(4, threads=64, cluster_dims=2) as bx:
        s = T.alloc_shared((16, 64), "float16")
        t = T.alloc_shared((16, 64), "float16")
        u = T.alloc_shared((16, 64), "float16")
        mb = T.alloc_cluster_barrier([1])
        T.copy_cluster(A[bx, 0:16, 0:64], s, cluster_mask=3)
        T.copy_cluster(s, t, dst_block=1 - T.block_rank_in_cluster(), remote_barrier=mb[0])
        T.copy_cluster(s, u, dst_block=1 - T.block_rank_in_cluster())
        T.mbarrier_wait_parity(mb[0], 0)
        T.cluster_sync()
        T.copy(t, Y[bx, 0:16, 0:64])
        T.copy(u, P[bx, 0:16, 0:64])


@T.prim_func
def without_block(A: T.Tensor((16, 64), "float16")):
    with T.Kernel(1, threads=64, cluster_dims=1):
        s = T.alloc_shared((16, 64), "float16")
        mb = T.alloc_cluster_barrier([1])
        T.copy_cluster(A, s, remote_barrier=mb[0])


A = np.arange(4 * 16 * 64).reshape(4, 16, 64).astype(np.float16)


def test_blocks_give_tiles_to_each_other():
    agree(given, A, expected=[A[[1, 0, 3, 2]]] * 2, targets=("sm_90a",), interpreted=False)


def test_other_targets_refuse_it():
    made = elaborated(given, (A,), None, {}, {})
    for target in (native_target(), parse_target("sm_80")):
        with pytest.raises(UnsupportedError, match="cluster") as caught:
            lower(made, target)
        assert caught.value.remedy


def test_a_barrier_needs_a_block():
    with pytest.raises(SourceValueError, match="no dst_block") as caught:
        elaborated(without_block, (), None, {}, {})
    assert "dst_block" in caught.value.remedy


def _to_a_barrier(cluster: bool, expects: bool):
    @T.prim_func
    def main(A: T.Tensor((2, 16, 64), "float16")):
        with T.Kernel(2, threads=64, cluster_dims=2) as bx:
            s, t = T.alloc_shared((16, 64), "float16"), T.alloc_shared((16, 64), "float16")
            mb = T.alloc_cluster_barrier([1]) if cluster else T.alloc_barrier([1])
            if expects:
                T.mbarrier_expect_tx(mb[0], 2048)
            T.copy(A[bx, 0:16, 0:64], s)
            T.copy_cluster(s, t, dst_block=1 - T.block_rank_in_cluster(), remote_barrier=mb[0])
            T.mbarrier_wait_parity(mb[0], 0)

    return main


@pytest.mark.parametrize(
    ("cluster", "expects", "what"), [(True, True, "counts bytes"), (False, False, "of one block")]
)
def test_barriers_that_would_not_open_are_refused(cluster: bool, expects: bool, what: str):
    made = elaborated(_to_a_barrier(cluster, expects), (), None, {}, {})
    with pytest.raises(UnsupportedError, match=what) as caught:
        lower(made, parse_target("sm_90a"))
    assert caught.value.remedy


def _counted(columns: int, dtype: str, first: int, known: bool = True):
    """Rows of one block to rows from ``first`` on of the other one's tile, of 8 more."""

    @T.prim_func
    def main(A: T.Tensor((2, 16, columns), dtype), C: T.Tensor((2, 16, columns), dtype), n: T.int32):
        with T.Kernel(2, threads=64, cluster_dims=2) as bx:
            s, t = T.alloc_shared((16, columns), dtype), T.alloc_shared((24, columns), dtype)
            mb = T.alloc_cluster_barrier([1])
            start = first if known else n
            T.copy(A[bx, 0:16, 0:columns], s)
            T.copy_cluster(
                s,
                t[start : start + 16, 0:columns],
                dst_block=1 - T.block_rank_in_cluster(),
                remote_barrier=mb[0],
            )
            T.mbarrier_wait_parity(mb[0], 0)
            T.copy(t[start : start + 16, 0:columns], C[bx, 0:16, 0:columns])
            T.cluster_sync()

    return main


def _source(kernel: object, given: np.ndarray) -> str:
    gpu = parse_target("sm_90a")
    return cuda.source(to_tir(lower(elaborated(kernel, (given, 8), None, {}, {}), gpu), gpu), gpu, "k")


@pytest.mark.parametrize(
    ("columns", "dtype", "sent"),
    [
        (64, "float16", "tilec_send_16_counted"),
        (8, "float32", "tilec_send_8_counted"),
        (7, "float32", "tilec_store_remote_32_counted"),
        (7, "float16", "tilec_store_remote_16_counted"),
    ],
)
def test_a_barrier_counts_what_comes(columns: int, dtype: str, sent: str):
    given = np.arange(2 * 16 * columns).reshape(2, 16, columns).astype(dtype)
    kernel = _counted(columns, dtype, 8)
    agree(kernel, given, 8, expected=[given[::-1]], targets=("sm_90a",), interpreted=False)
    assert sent in _source(kernel, given)


def test_one_thread_tells_of_bytes_that_are_not_known_to_be_all():
    given = np.arange(2 * 16 * 64).reshape(2, 16, 64).astype(np.float16)
    kernel = _counted(64, "float16", 8, known=False)
    agree(kernel, given, 8, expected=[given[::-1]], targets=("sm_90a",), interpreted=False)
    assert "_counted" not in _source(kernel, given)
