"""Hints of T.copy and T.Parallel: each is obeyed, or said not to be in its line; no result changes."""

from __future__ import annotations

from typing import Any

import pytest
from emulated import SM80, SM90A, Beside, elaborated

import tilec.language as T
from tilec.backends.base import backend_of
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.ir.nodes import Kernel
from tilec.ir.roads import Road
from tilec.ir.text.printer import format_kernel


def product(load: dict[str, Any], store: dict[str, Any]) -> Kernel:
    """A product that fits warp roles, with hints of the load of A and of the store."""

    @T.prim_func
    def main(
        A: T.Tensor((64, 128), "float16"), B: T.Tensor((128, 64), "float16"), C: T.Tensor((64, 64), "float16")
    ):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 64), "float16")
            b = T.alloc_shared((64, 64), "float16")
            acc = T.alloc_fragment((64, 64), "float32")
            T.clear(acc)
            for k in T.Pipelined(2, num_stages=2):
                T.copy(A[0, k * 64], a, **load)
                T.copy(B[k * 64, 0], b)
                T.gemm(a, b, acc)
            T.copy(acc, C, **store)

    return elaborated(main)


def scaled(loop: dict[str, Any]) -> Kernel:
    @T.prim_func
    def main(A: T.Tensor((32, 64)), B: T.Tensor((32, 64))):
        with T.Kernel(1, threads=64):
            for i, j in T.Parallel(32, 64, **loop):
                B[i, j] = A[i, j] * 2

    return elaborated(main)


def gathered(loop: dict[str, Any]) -> Kernel:
    """A product of rows that a table names; the loop that brings them has hints."""

    @T.prim_func
    def main(
        A: T.Tensor((64, 128), "float16"),
        at: T.Tensor((64,), "int32"),
        B: T.Tensor((128, 64), "float16"),
        C: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 64), "float16")
            b = T.alloc_shared((64, 64), "float16")
            acc = T.alloc_fragment((64, 64), "float32")
            T.clear(acc)
            for k in T.Pipelined(2, num_stages=2):
                for i, j in T.Parallel(64, 64, annotations=loop):
                    a[i, j] = A[at[i], k * 64 + j]
                T.copy(B[k * 64, 0], b)
                T.gemm(a, b, acc)
            T.copy(acc, C)

    return elaborated(main)


def compiled(kernel: Kernel, target: Any) -> tuple[str, list[Road]]:
    """The CUDA text of a kernel that gives the interpreter's results, and what it does not obey."""
    assert Beside(kernel, target).run({}) == []
    lowered = to_tir(lower(kernel, target), target)
    roads = [road for road in lowered.launches[0].roads if road.instruction == "not as its author asks"]
    return backend_of(target).text("source", lowered, target, "kernel"), roads


@pytest.mark.parametrize("hint", [{"disable_tma": True}, {"prefer_instruction": "cp_async"}])
def test_a_load_is_kept_from_tma(hint):
    assert "cp.async.bulk.tensor" in compiled(product({}, {}), SM90A)[0]
    text, roads = compiled(product(hint, {}), SM90A)
    assert "cp.async.bulk.tensor" not in text
    assert "cp.async.cg" in text
    assert roads == []


def test_a_store_is_kept_from_tma():
    text, _ = compiled(product({}, {"disable_tma": True}), SM90A)
    assert "cp.async.bulk.tensor.2d.shared" in text
    assert "cp.async.bulk.tensor.2d.global" not in text


def test_an_eviction_policy_is_the_hint_of_a_bulk_copy():
    assert "L2::cache_hint" not in compiled(product({}, {}), SM90A)[0]
    for load, store in (({"eviction_policy": "evict_first"}, {}), ({}, {"eviction_policy": "evict_last"})):
        text, roads = compiled(product(load, store), SM90A)
        assert "L2::cache_hint" in text
        assert roads == []


@pytest.mark.parametrize("when", ["first", "last"])
def test_an_eviction_policy_is_the_hint_of_a_copy_ahead(when):
    text, roads = compiled(product({"eviction_policy": f"evict_{when}"}, {}), SM80)
    assert f"createpolicy.fractional.L2::evict_{when}.b64 policy; " in text
    assert "cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, none, policy" in text
    assert "tilec_cp_async_16(" in text
    assert roads == []


def test_a_gather_ahead_has_hints():
    text, roads = compiled(gathered({"eviction_policy": "evict_first"}), SM80)
    assert "tilec_cp_async_16_evict_first(" in text
    assert roads == []
    assert "tilec_cp_async_4(" in compiled(gathered({"coalesced_width": 2}), SM80)[0]
    assert "at_at" not in compiled(gathered({"prefer_instruction": "sync"}), SM80)[0]


def test_a_load_stays_in_its_trip():
    text, roads = compiled(product({"prefer_instruction": "sync"}, {}), SM80)
    assert text.count("tilec_cp_async") < compiled(product({}, {}), SM80)[0].count("tilec_cp_async")
    assert roads == []


@pytest.mark.parametrize(("hint", "size"), [({}, 16), ({"coalesced_width": 2}, 8)])
def test_a_thread_moves_no_more_than_it_is_asked_to(hint, size):
    kernel = scaled(hint)
    assert compiled(kernel, SM80)[1] == []
    roads = to_tir(lower(kernel, SM80), SM80).launches[0].roads
    assert {road.instruction for road in roads} == {f"vectors of {size} bytes"}


def test_iterations_go_to_the_threads_that_are_named():
    asked = T.Fragment((32, 64), lambda i, j: (j, i))
    kernel = scaled({"loop_layout": asked})
    text, roads = compiled(kernel, SM80)
    assert 'layout="32:1@reg, 32:1@lane 2:1@warp"' in format_kernel(
        lower(kernel, SM80, until="infer_layouts")
    )
    assert roads == []
    assert text != compiled(scaled({}), SM80)[0]


@pytest.mark.parametrize(
    ("kernel", "target", "why"),
    [
        (lambda: product({"prefer_instruction": "tma"}, {}), SM80, "TMA loads tiles"),
        (lambda: product({}, {"eviction_policy": "evict_first"}), SM80, "vectors have none"),
        (lambda: product({"coalesced_width": 8}, {}), SM90A, "TMA moves boxes"),
        (lambda: product({"coalesced_width": 32}, {}), SM80, "8 are aligned"),
        (lambda: scaled({"prefer_async": True}), SM80, "fills no shared tile"),
        (lambda: scaled({"coalesced_width": 64}), SM80, "asks for 64 elements"),
    ],
)
def test_what_is_not_obeyed_is_said(kernel, target, why):
    (road,) = compiled(kernel(), target)[1]
    assert road.loss is not None
    assert why in road.loss.condition
    assert road.loss.remedy
    assert road.line


def test_a_layout_for_other_threads_is_said():
    kernel = scaled({"loop_layout": T.Fragment((32, 64), lambda i, j: (i, j))})
    lowered = to_tir(lower(kernel, SM80), SM80)
    (road,) = [road for road in lowered.launches[0].roads if road.kind == "layout"]
    assert "among 64 threads" in str(road.loss)
