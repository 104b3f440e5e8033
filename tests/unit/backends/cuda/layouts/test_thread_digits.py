"""Indices of threads that an author takes apart: which thread has an element, and how often threads meet."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from agree import agree, elaborated
from tvm import tirx

import tilec.language as T
from tilec.backends.cuda.analysis.accesses.owners import Each, Known, Owner, in_loop, owner
from tilec.backends.cuda.analysis.blocks.thread_digits import ThreadDigits
from tilec.backends.cuda.nodes import Sync
from tilec.backends.pipeline import lower
from tilec.ir.nodes import Launch, Store, walk
from tilec.lowering.analysis.accesses import Access
from tilec.targets import parse_target

THREADS = 128
TX = tirx.Var("tx", "int32")
REST = tirx.Var("ty", "int32"), tirx.Var("tz", "int32")
TILE = tirx.decl_buffer((128, 1024), "float32", name="t", scope="shared.dyn")
#: (row, column) of the element that a thread stores.
PLACES: list[tuple[Any, Any]] = [
    (TX // 16, TX % 16),
    (TX // 16 % 8, TX % 16 * 4),
    (TX % 16, TX // 16),
    (TX // 32, TX % 32),
    (0 * TX, TX),
    (0 * TX, TX // 16 * 16 + TX % 16),
    (0 * TX, TX % 16 * 8 + TX // 16),
    (TX // 32, TX % 32 // 4 * 4 + TX % 4),
    (TX // 32, TX % 32 // 4),
    (TX // 32 * 2, TX % 32 + 1),
    (TX // 10, TX % 10),
    (TX // 10, TX % 10 + 1014),
]


def each(*indices: Any) -> Each:
    """The threads of a launch that stores at indices."""
    body = (Store(TILE, tuple(indices), tirx.const(0.0, "float32")),)
    found = Each.of(Launch((1,), (tirx.Var("bx", "int32"),), (THREADS, 1, 1), body, thread_vars=(TX, *REST)))
    assert found is not None
    return found


def owner_of(place: tuple[Any, Any], among: Each) -> Owner | None:
    """The thread of ``among`` that has the element at a place, which it stores."""
    item = in_loop(Access(TILE, place, True), among, Known())
    return owner(item, among, THREADS // 32, Known())


def elements(indices: Sequence[Any]) -> dict[tuple[int, ...], int]:
    """Element to the last thread that stores it."""
    row, column = (eval(str(index), {"tx": np.arange(THREADS)}) for index in indices)
    return {key: thread for thread, key in enumerate(np.broadcast(row, column))}


@pytest.mark.parametrize(("first", "second"), itertools.combinations(range(len(PLACES)), 2))
def test_equal_owners_are_one_thread(first, second):
    one, two = PLACES[first], PLACES[second]
    among = each(*one, *two)
    found = [owner_of(place, among) for place in (one, two)]
    if found[0] is None or found[0] != found[1]:
        return
    left, right = elements(one), elements(two)
    assert all(left[key] == right[key] for key in left.keys() & right.keys())


def test_a_number_and_its_digits_have_the_same_owner():
    among = each(TX // 16, TX % 16)
    places = (PLACES[4], PLACES[5])
    whole, digits = (owner_of(at, among) for at in places)
    assert whole is not None
    assert whole == digits


def test_elements_of_several_threads_have_no_owner():
    among = each(TX // 32, TX % 32 // 4)
    assert owner_of(PLACES[8], among) is None


def test_digits_are_where_quotients_and_remainders_cut():
    found = ThreadDigits.of([TX], [THREADS], [TX // 4 % 8, TX % 4])
    assert found.extents == (4, 8, 4)
    assert ThreadDigits.of([TX], [THREADS], [TX // 6, TX % 4]).extents == (4, 32)
    assert ThreadDigits.of([TX], [THREADS], [(TX + tirx.Var("trip", "int32") * THREADS) % 8]).extents == (
        8,
        16,
    )
    assert ThreadDigits.of([TX], [THREADS], [(TX + 4) // 8]).vars == (TX,)
    assert ThreadDigits.of([TX], [THREADS], [TX * 2]).vars == (TX,)


def test_masks_and_shifts_of_every_width_keep_their_places():
    dtypes = ("uint8", "int32", "uint32", "int64", "uint64")
    for dtype, bits in itertools.product(dtypes, (1, 7, 8, 31, 32, 63)):
        tx = tirx.Var("tx", dtype)
        width = int(dtype.removeprefix("u").removeprefix("int"))
        if bits < width:
            places = tx >> tirx.const(bits, dtype), tx & tirx.const((1 << bits) - 1, dtype)
            digits = ThreadDigits.of([tx], [THREADS], places)
            assert (digits.extents == (1 << bits, THREADS >> bits)) == (bits < 7 and width > 8)
    word = tirx.Var("tx", "uint32")
    assert ThreadDigits.of([word], [THREADS], [word & tirx.const(0xFFFFFFFF, "uint32")]).vars == (word,)


def test_threads_with_blocks_of_a_product_meet_twice_a_step():
    @T.prim_func
    def main(
        A: T.Tensor((64, 48), "float32"), B: T.Tensor((48, 64), "float32"), C: T.Tensor((64, 64), "float32")
    ):
        with T.Kernel(1, threads=256):
            a, b = T.alloc_shared((16, 64), "float32"), T.alloc_shared((16, 64), "float32")
            acc = T.alloc_local((4, 4), "float32")
            tx = T.get_thread_binding()
            for i, j in T.grid(4, 4):
                acc[i, j] = 0.0
            for k in T.serial(3):
                for i, j in T.Parallel(64, 16):
                    a[j, i] = A[i, k * 16 + j]
                for i, j in T.Parallel(16, 64):
                    b[i, j] = B[k * 16 + i, j]
                for kk in T.serial(16):
                    for i, j in T.grid(4, 4):
                        acc[i, j] += a[kk, tx // 16 * 4 + i] * b[kk, tx % 16 * 4 + j]
            for i, j in T.grid(4, 4):
                C[tx // 16 * 4 + i, tx % 16 * 4 + j] = acc[i, j]

    rng = np.random.default_rng(0)
    left, right = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((64, 48), (48, 64)))
    agree(main, left, right, expected=left @ right)
    made = lower(elaborated(main, (left, right), None, {}, {}), parse_target("sm_80"))
    assert sum(isinstance(stmt, Sync) for stmt in walk(made.launches[0].body)) == 2


def test_threads_that_fill_a_tile_element_by_element_do_not_meet_while_they_do():
    @T.prim_func
    def main(A: T.Tensor((18, 18), "float32"), C: T.Tensor((16, 16), "float32")):
        with T.Kernel(1, threads=128):
            s = T.alloc_shared((18, 18), "float32")
            tx = T.get_thread_binding()
            for i in T.serial(3):
                e = tx + i * 128
                if e < 324:
                    s[e // 18, e % 18] = A[e // 18, e % 18]
            for i in T.serial(2):
                r, c = tx // 16 + i * 8, tx % 16
                C[r, c] = s[r, c + 1] + s[r + 2, c + 1] + s[r + 1, c] + s[r + 1, c + 2]

    a = np.random.default_rng(0).integers(-9, 10, (18, 18)).astype(np.float32)
    agree(main, a, expected=a[:-2, 1:-1] + a[2:, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:])
    made = lower(elaborated(main, (a,), None, {}, {}), parse_target("sm_80"))
    assert sum(isinstance(stmt, Sync) for stmt in walk(made.launches[0].body)) == 1


@pytest.mark.parametrize(
    "apart",
    [lambda tx: (tx // 32, tx % 32), lambda tx: (tx >> 5, tx & 31), lambda tx: ((tx >> 3) // 4, tx & 31)],
)
def test_warps_with_rows_of_their_own_do_not_meet(apart):
    @T.prim_func
    def main(A: T.Tensor((4, 64), "float32"), C: T.Tensor((4, 64), "float32")):
        with T.Kernel(1, threads=128):
            s = T.alloc_shared((4, 64), "float32")
            warp, lane = apart(T.get_thread_binding())
            for i in T.serial(2):
                s[warp, i * 32 + lane] = A[warp, i * 32 + lane]
            for i in T.serial(2):
                C[warp, i * 32 + lane] = s[warp, i * 32 + lane] * 2

    a = np.random.default_rng(0).integers(-9, 10, (4, 64)).astype(np.float32)
    agree(main, a, expected=a * 2)
    made = lower(elaborated(main, (a,), None, {}, {}), parse_target("sm_80"))
    assert not any(isinstance(stmt, Sync) for stmt in walk(made.launches[0].body))
