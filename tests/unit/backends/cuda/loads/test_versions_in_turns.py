"""Versions of a tile that trips of a loop take in turns: how often the threads that share it meet."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, elaborated
from tvm import tirx

import tilec.language as T
from tilec.backends.cuda.analysis.pipelines.turns import Turn
from tilec.backends.cuda.nodes import ProductsWait, Sync, WarpgroupProduct
from tilec.backends.pipeline import lower
from tilec.ir.nodes import For, walk
from tilec.targets import parse_target

TRIPS = 7
TRIP, OTHER = tirx.Var("k", "int32"), tirx.Var("x", "int32")


def test_a_turn_is_the_remainder_of_a_trip_alone():
    def found(*indices):
        return Turn.of(indices, {OTHER: TRIP + 1}, [TRIP])

    assert found(TRIP, None, TRIP % 2).axis == 2
    assert found(OTHER % 2).offset == 1
    assert found(TRIP & 3).count == 4
    assert found(TRIP * 3 % 2) is None
    assert found((TRIP + tirx.Var("tx", "int32")) % 2) is None
    assert found(tirx.Var("tx", "int32") % 2) is None


def test_turns_differ_by_their_offsets():
    now, one, two = (Turn(0, TRIP, 2, 0).later(step) for step in (0, 1, 2))
    assert now.differs(one)
    assert not now.differs(two)
    assert not now.differs(Turn(1, TRIP, 2, 1))


def shifted(versions, ahead, stored):
    """Each trip stores a row where ``stored`` says and reads the one of ``ahead`` trips ago turned round."""

    @T.prim_func
    def main(A: T.Tensor((TRIPS, 128), "float32"), C: T.Tensor((TRIPS, 128), "float32")):
        with T.Kernel(1, threads=128):
            s = T.alloc_shared((versions, 128), "float32")
            tx = T.get_thread_binding()
            for v in T.serial(versions):
                s[v, tx] = 0.0
            for k in T.serial(TRIPS):
                s[stored(k), tx] = A[k, tx]
                C[k, tx] = s[(stored(k) + versions - ahead) % versions, 127 - tx]

    return main


@pytest.mark.parametrize(
    ("versions", "ahead", "stored", "meetings"),
    [
        (2, 0, lambda k: k % 2, 1),
        (2, 0, lambda k: k & 1, 1),
        (3, 0, lambda k: (k + 2) % 3, 1),
        (3, 1, lambda k: k % 3, 1),
        (2, 1, lambda k: k % 2, 1),
        (1, 0, lambda k: 0, 2),
        (2, 0, lambda k: k // 2 % 2, 2),
    ],
    ids=["two", "by a mask", "three", "the trip before", "what comes next", "one", "for two trips each"],
)
def test_threads_meet_once_a_trip_where_versions_take_turns(versions, ahead, stored, meetings):
    a = np.random.default_rng(0).integers(-9, 10, (TRIPS, 128)).astype(np.float32)
    kernel, kept = shifted(versions, ahead, stored), np.zeros((versions, 128), np.float32)
    expected = np.zeros_like(a)
    for k in range(TRIPS):
        kept[stored(k)] = a[k]
        expected[k] = kept[(stored(k) + versions - ahead) % versions, ::-1]
    agree(kernel, a, expected=expected)
    made = lower(elaborated(kernel, (a,), None, {}, {}), parse_target("sm_80"))
    (loop,) = (
        stmt
        for stmt in walk(made.launches[0].body)
        if isinstance(stmt, For) and stmt.stop.value == TRIPS and not isinstance(stmt.body[0], For)
    )
    assert sum(isinstance(stmt, Sync) for stmt in walk(loop.body)) == meetings


def test_a_version_that_returns_is_waited_for():
    """Trips that only store meet before one of them has the version of an earlier one."""

    @T.prim_func
    def main(A: T.Tensor((TRIPS, 128), "float32"), C: T.Tensor((2, 128), "float32")):
        with T.Kernel(1, threads=128):
            s = T.alloc_shared((2, 128), "float32")
            tx = T.get_thread_binding()
            for k in T.serial(TRIPS):
                s[k % 2, (tx + k * 5) % 128] = A[k, tx]
            for v in T.serial(2):
                C[v, tx] = s[v, tx]

    a = np.random.default_rng(0).integers(-9, 10, (TRIPS, 128)).astype(np.float32)
    last = [np.roll(a[k], k * 5) for k in (TRIPS - 1, TRIPS - 2)]
    agree(main, a, expected=np.stack(last))


def test_warpgroups_meet_once_for_an_operand_with_two_versions():
    @T.prim_func
    def main(
        A: T.Tensor((256, 256), "float16"),
        B: T.Tensor((256, 128), "int8"),
        C: T.Tensor((256, 128), "float32"),
    ):
        with T.Kernel(1, threads=256):
            a, b = T.alloc_shared((256, 64), "float16"), T.alloc_shared((64, 128), "int8")
            made, c = T.alloc_shared((64, 128), "float16"), T.alloc_fragment((256, 128), "float32")
            T.clear(c)
            for k in T.Pipelined(4, num_stages=2):
                T.copy(A[0, k * 64], a)
                T.copy(B[k * 64, 0], b)
                T.copy(b, made)
                T.gemm(a, made, c)
            T.copy(c, C)

    rng = np.random.default_rng(0)
    a = rng.integers(-2, 3, (256, 256)).astype(np.float16)
    b = rng.integers(-3, 4, (256, 128)).astype(np.int8)
    agree(main, a, b, expected=a.astype(np.float32) @ b.astype(np.float32))
    kernel = lower(elaborated(main, (a, b), None, {}, {}), parse_target("sm_90a"))
    loops = (stmt for stmt in walk(kernel.launches[0].body) if isinstance(stmt, For))
    (trip,) = (loop.body for loop in loops if any(isinstance(stmt, WarpgroupProduct) for stmt in loop.body))
    kinds = [type(stmt) for stmt in trip if isinstance(stmt, (Sync, ProductsWait, WarpgroupProduct))]
    assert kinds == [ProductsWait, Sync, WarpgroupProduct]
