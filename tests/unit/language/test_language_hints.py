"""What authors ask for in annotations and hints: known, a loss that says why not, or refused."""

from __future__ import annotations

from typing import Any

import pytest
from language_build import build

import tilec.language as T
from tilec.errors import SourceTypeError, SourceValueError
from tilec.ir.nodes import Copy, Parallel, walk
from tilec.ir.roads import Road


def losses(statement: Any) -> list[Road]:
    """The losses of a launch with ``statement(A, tile, sums)`` in it."""

    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16")):
        with T.Kernel(1, threads=128):
            tile = T.alloc_shared((64, 64), "float16")
            sums = T.alloc_fragment((64, 64), "float32")
            T.clear(tile)
            T.clear(sums)
            statement(A, tile, sums)
            T.copy(sums, A)

    return [road for road in build(main).launches[0].roads if road.loss is not None]


def looped(nest: Any) -> None:
    """A loop in tilec's own form, as the rewritten ``for`` runs it."""
    nest.open()
    nest.close()


ANNOTATED = {"evict_policy": "evict_first"}


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        (lambda A, s, f: T.copy(A, s, annotations=ANNOTATED), "did you mean 'eviction_policy'?"),
        (lambda A, s, f: T.async_copy(A, s, annotations=ANNOTATED), "did you mean 'eviction_policy'?"),
        (lambda A, s, f: T.copy(A, s, annotations={"no": 1}), "known here: coalesced_width, disable_tma"),
        (lambda A, s, f: looped(T.Parallel(4, annotations={"layout": 1})), "did you mean 'loop_layout'?"),
        (lambda A, s, f: looped(T.serial(4, annotations={"pragma": 1})), "it takes none"),
        (lambda A, s, f: looped(T.unroll(4, annotations={"pragma": 1})), "it takes none"),
        (lambda A, s, f: looped(T.vectorized(4, annotations={"pragma": 1})), "it takes none"),
        (lambda A, s, f: looped(T.Pipelined(4, annotations={"stages": 2})), "it takes none"),
        (lambda A, s, f: T.copy(A, s, annotations={T.WSID: 0}), "shares out the work of warps itself"),
        (lambda A, s, f: T.gemm(s, s, f, annotations={T.WSID: 0}), "shares out the work of warps itself"),
        (lambda A, s, f: looped(T.unroll(4, unroll_factor=2)), "unrolled as a whole"),
        (lambda A, s, f: T.atomic_add(A[0, 0], s[0, 0], use_tma=True), "not by TMA"),
        (lambda A, s, f: T.copy(A[0, 0], s[1, 1], coalesced_width=4), "as an assignment does"),
        (lambda A, s, f: T.annotate_l2_hit_ratio({A: 0.5}), "set aside for A"),
        (lambda A, s, f: T.annotate_padding({s: 8}), "not padded"),
        (lambda A, s, f: T.set_max_nreg(240, 1), "registers are shared out"),
        (lambda A, s, f: T.annotate_ws_schedule(T.WSSchedule()), "shares out the work of warps itself"),
    ],
)
def test_what_nothing_obeys_is_a_loss_in_its_line(statement, said):
    (road,) = losses(statement)
    assert said in str(road)
    assert road.place.startswith("test_language_hints.py:")


@pytest.mark.parametrize(
    "statement",
    [
        lambda A, s, f, given: T.fill(s, 1, annotations=given),
        lambda A, s, f, given: T.clear(s, annotations=given),
        lambda A, s, f, given: T.gemm(s, s, f, annotations=given),
        lambda A, s, f, given: T.wgmma_gemm(s, s, f, annotations=given),
        lambda A, s, f, given: T.reduce_sum(f, f[0, :], dim=0, annotations=given),
        lambda A, s, f, given: T.reduce_absmax(f, f[0, :], dim=0, annotations=given),
        lambda A, s, f, given: T.cumsum(s, annotations=given),
        lambda A, s, f, given: T.transpose(s, s, annotations=given),
        lambda A, s, f, given: T.atomic_add(A, s, annotations=given),
        lambda A, s, f, given: T.atomic_max(A, s, annotations=given),
    ],
)
def test_statements_without_hints_refuse_annotations(statement):
    with pytest.raises(SourceValueError, match=r"(?s)has no annotation 'wsid'.*did you mean 'ws_id'\?"):
        losses(lambda A, s, f: statement(A, s, f, {"wsid": 0}))
    with pytest.raises(SourceTypeError, match="annotations as a dictionary"):
        losses(lambda A, s, f: statement(A, s, f, [1]))


def test_copies_that_become_loops_keep_their_hints():
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), image: T.Tensor((1, 8, 8, 64), "float16")):
        with T.Kernel(1, threads=128):
            tile = T.alloc_shared((64, 64), "float16")
            T.copy(A[0, 0], T.reshape(tile, (32, 128)), coalesced_width=2)
            T.im2col(image, tile, 0, 0, 1, 1, 1, 0, eviction_policy="evict_first")

    found = [stmt for stmt in walk(build(main).launches[0].body) if isinstance(stmt, (Copy, Parallel))]
    assert [stmt.hints.given for stmt in found] == [
        {"coalesced_width": 2},
        {"eviction_policy": "evict_first"},
    ]
