"""Hints in launches whose warps have roles, of copies that name their instruction, and of single threads."""

from __future__ import annotations

from typing import Any

import pytest
from emulated import SM80, SM90A, elaborated
from test_emulated_hints import compiled

import tilec.language as T
from tilec.backends.base import backend_of
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.ir.nodes import Kernel
from tilec.ir.roads import Road


def losses(kernel: Kernel, target: Any) -> list[Road]:
    """What a launch does not obey."""
    roads = to_tir(lower(kernel, target), target).launches[0].roads
    return [road for road in roads if road.instruction == "not as its author asks"]


def stored(dtype: str, store: dict[str, Any]) -> Kernel:
    """A product in warp roles whose result has this type."""

    @T.prim_func
    def main(
        A: T.Tensor((64, 128), "float16"), B: T.Tensor((128, 64), "float16"), C: T.Tensor((64, 64), dtype)
    ):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 64), "float16")
            b = T.alloc_shared((64, 64), "float16")
            acc = T.alloc_fragment((64, 64), "float32")
            T.clear(acc)
            for k in T.Pipelined(2, num_stages=2):
                T.copy(A[0, k * 64], a)
                T.copy(B[k * 64, 0], b)
                T.gemm(a, b, acc)
            T.copy(acc, C, **store)

    return elaborated(main)


def ring(load: dict[str, Any]) -> Kernel:
    """A ring by hand of one buffer."""

    @T.prim_func
    def main(
        A: T.Tensor((64, 128), "float16"), B: T.Tensor((128, 64), "float16"), C: T.Tensor((64, 64), "float16")
    ):
        with T.Kernel(1, threads=256):
            a = T.alloc_shared((64, 64), "float16")
            b = T.alloc_shared((64, 64), "float16")
            acc = T.alloc_fragment((64, 64), "float32")
            full, empty = T.alloc_barrier([128]), T.alloc_barrier([128])
            with T.ws(1):
                for k in T.serial(2):
                    T.mbarrier_wait_parity(empty, (k + 1) % 2)
                    T.tma_copy(A[0, k * 64], a, barrier=full, **load)
                    T.tma_copy(B[k * 64, 0], b, barrier=full)
                    T.mbarrier_arrive(full)
            with T.ws(0):
                T.clear(acc)
                for k in T.serial(2):
                    T.mbarrier_wait_parity(full, k % 2)
                    T.gemm(a, b, acc)
                    T.mbarrier_arrive(empty)
                T.copy(acc, C)

    return elaborated(main)


def attention(store: dict[str, Any], dtype: str = "float16") -> Kernel:
    @T.prim_func
    def main(
        Q: T.Tensor((64, 64), "float16"),
        K: T.Tensor((128, 64), "float16"),
        V: T.Tensor((128, 64), "float16"),
        out: T.Tensor((64, 64), dtype),
    ):
        with T.Kernel(1, threads=128):
            q = T.alloc_shared((64, 64), "float16")
            k = T.alloc_shared((64, 64), "float16")
            v = T.alloc_shared((64, 64), "float16")
            s = T.alloc_fragment((64, 64), "float32")
            p = T.alloc_fragment((64, 64), "float16")
            o = T.alloc_fragment((64, 64), "float32")
            T.copy(Q, q)
            T.clear(o)
            for at in T.Pipelined(2, num_stages=2):
                T.copy(K[at * 64, 0], k)
                T.copy(V[at * 64, 0], v)
                T.gemm(q, k, s, transpose_B=True, clear_accum=True)
                T.copy(s, p)
                T.gemm(p, v, o)
            T.copy(o, out, **store)

    return elaborated(main)


def text(kernel: Kernel) -> str:
    return backend_of(SM90A).text("source", to_tir(lower(kernel, SM90A), SM90A), SM90A, "kernel")


def test_a_policy_of_results_that_leave_by_tma_is_obeyed():
    for made in (stored, lambda dtype, store: attention(store, dtype)):
        assert "L2::cache_hint" not in text(made("float16", {}))
        found, roads = compiled(made("float16", {"eviction_policy": "evict_first"}), SM90A)
        assert ".bulk_group.L2::cache_hint" in found
        assert roads == []


def test_a_policy_of_stores_from_registers_is_said():
    hint = {"eviction_policy": "evict_first"}
    (road,) = losses(stored("float32", hint), SM90A)
    assert "stores from registers have none" in str(road)
    (road,) = losses(attention(hint, "float32"), SM90A)
    assert "have none" in str(road)


def test_results_of_attention_are_kept_from_tma():
    found, roads = compiled(attention({"disable_tma": True}), SM90A)
    assert "cp.async.bulk.tensor.2d.global" not in found
    assert roads == []
    (road,) = losses(attention({"disable_tma": True, "prefer_instruction": "tma"}), SM90A)
    assert "stores and adds results" in str(road)


def test_copies_that_name_tma_have_hints():
    assert "L2::cache_hint" not in text(ring({}))
    found, roads = compiled(ring({"eviction_policy": "evict_last"}), SM90A)
    assert "L2::cache_hint" in found
    assert roads == []
    plain = {"eviction_policy": "evict_last", "annotations": {"disable_tma": True}}
    (road,) = losses(ring(plain), SM90A)
    assert "vectors have none" in str(road)


def test_hints_of_copies_in_a_cluster_are_said():
    @T.prim_func
    def main(A: T.Tensor((2, 16, 64), "float16"), B: T.Tensor((2, 16, 64), "float16")):
        with T.Kernel(2, threads=64, cluster_dims=2) as bx:
            s = T.alloc_shared((16, 64), "float16")
            t = T.alloc_shared((16, 64), "float16")
            T.copy_cluster(A[bx, 0:16, 0:64], s, eviction_policy="evict_first", cluster_mask=3)
            T.copy_cluster(s, t, dst_block=1 - T.block_rank_in_cluster(), coalesced_width=8)
            T.cluster_sync()
            T.copy(t, B[bx, 0:16, 0:64])

    kernel = elaborated(main)
    masked, unaligned = (str(road) for road in losses(kernel, SM90A))
    assert "each block of cluster_mask" in masked
    assert "coalesced_width asks for 8" in unaligned
    assert "evict_first" in backend_of(SM90A).text(
        "source", to_tir(lower(kernel, SM90A), SM90A), SM90A, "kernel"
    )


@pytest.mark.parametrize("target", [SM80, SM90A])
def test_hints_of_single_threads_are_said(target):
    @T.prim_func
    def main(A: T.Tensor((64, 8)), B: T.Tensor((64, 8))):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            own = T.alloc_local((8,), "float32")
            T.copy(A[tx, 0:8], own, coalesced_width=4, disable_tma=True)
            for i in T.Parallel(8, coalesced_width=2):
                own[i] = own[i] + 1
            for i in T.serial(8):
                B[tx, i] = own[i]

    found = losses(elaborated(main), target)
    assert [str(road.loss).partition(" ")[0] for road in found] == ["coalesced_width"] * 2
    assert len({road.line for road in found}) == 2


def test_hints_of_a_tile_that_each_thread_has_whole_are_said():
    @T.prim_func
    def main(A: T.Tensor((8, 8)), B: T.Tensor((8, 8))):
        with T.Kernel(1, threads=64):
            own = T.alloc_local((8, 8), "float32")
            T.copy(A, own, eviction_policy="evict_first")
            T.copy(own, B)
            T.copy(A[0:1, 0:1], B[1:2, 1:2], coalesced_width=4)

    first, second = losses(elaborated(main), SM80)
    assert "eviction_policy" in str(first)
    assert "coalesced_width" in str(second)


def test_results_that_leave_through_shared_memory_keep_their_hints():
    @T.prim_func
    def main(
        A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float16")
    ):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 64), "float16")
            b = T.alloc_shared((64, 64), "float16")
            acc = T.alloc_fragment((64, 64), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, b, acc, clear_accum=True)
            T.copy(acc, C, coalesced_width=4)

    kernel = elaborated(main)
    assert losses(kernel, SM80) == []
    roads = to_tir(lower(kernel, SM80), SM80).launches[0].roads
    assert "vectors of 8 bytes" in {road.instruction for road in roads}
