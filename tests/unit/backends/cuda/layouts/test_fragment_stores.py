"""Stores of fragments to shared tiles: every element once, no bank twice, and the code of it."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import tirx

from tilec.backends.cuda.analysis.layouts.fragment_stores import FragmentStore, fragment_store
from tilec.backends.cuda.nodes import ThreadLoop
from tilec.ir.layout import Digit, Layout, Swizzle
from tilec.ir.layout_algebra import bank_conflicts, element_at
from tilec.ir.nodes import Store

ROWS = (Digit(8, 4, "lane"), Digit(2, 2, "reg"), Digit(4, 1, "warp"))


def sums(columns: int) -> Layout:
    """The accumulator of a warpgroup."""
    return Layout((ROWS, (Digit(2, 1, "reg"), Digit(4, 1, "lane"), Digit(columns // 8, 4, "reg"))))


def slabs(columns: int, wide: int) -> Layout:
    """64 rows in slabs of 128 bytes, as TMA swizzles them."""
    swizzle = Swizzle(8, 16 // (128 // wide), wide)
    return Layout(((Digit(64, wide),), (Digit(wide, 1), Digit(columns // wide, 64 * wide))), swizzle)


def plan(
    own: Layout, tile: Layout, dtype: str, given: str = "float32", turned: bool = False
) -> FragmentStore | None:
    """How a loop over all elements of a tile stores them; ``turned``: it holds the fragment transposed."""
    shape = own.shape
    source = tirx.decl_buffer(shape, given, name="f", scope="local.fragment")
    target = tirx.decl_buffer(tile.shape, dtype, name="s", scope="shared.dyn")
    i, j = tirx.Var("i", "int32"), tirx.Var("j", "int32")
    value = tirx.BufferLoad(source, [j, i] if turned else [i, j])
    store = Store(target, (i, j), value if given == dtype else tirx.Cast(dtype, value))
    loop = ThreadLoop((i, j), tile.shape, across(own) if turned else own, (store,), 2)
    return fragment_store(loop, {source: own, target: tile})


def across(own: Layout) -> Layout:
    """The layout of a loop over a fragment's columns and rows."""
    return Layout(own.digits[::-1])


def accesses(found: FragmentStore, own: Layout, tile: Layout) -> np.ndarray:
    """Where each warp, lane and access begins, from the first one on."""
    lanes = np.arange(32)[None, :]
    if found.matrices:
        place = {"lane": lanes % 8 * 4, "reg": lanes // 8 * 2}
    else:
        place = {"lane": lanes, "reg": np.where(lanes & found.lane_bit, 2 * found.pair_bit, 0)}
    first = tile.offset(element_at(own, {**place, "warp": np.arange(4)[:, None]}))
    return np.stack([(first ^ step.flip) + step.far for step in found.steps], axis=-1)


@pytest.mark.parametrize("columns", [64, 128])
@pytest.mark.parametrize(("dtype", "given"), [("float16", "float32"), ("bfloat16", "bfloat16")])
def test_pairs_of_16_bits_go_by_matrices(columns: int, dtype: str, given: str) -> None:
    own, tile = sums(columns), slabs(columns, 64)
    found = plan(own, tile, dtype, given)
    assert found is not None
    assert found.matrices
    rows = accesses(found, own, tile)
    assert len(np.unique(rows)) == 64 * columns // 8
    assert all(
        bank_conflicts(rows[0, :, step].tolist(), 2, 8, together=8) == 1 for step in range(rows.shape[2])
    )


@pytest.mark.parametrize(
    ("rows", "dtype", "given"), [(64, "float16", "float32"), (256, "bfloat16", "bfloat16")]
)
def test_matrices_are_turned_on_their_way(rows: int, dtype: str, given: str) -> None:
    own, tile = sums(rows), Layout(((Digit(rows, 64),), (Digit(64, 1),)), Swizzle(8, 8, 64))
    found = plan(own, tile, dtype, given, turned=True)
    assert found is not None
    assert found.turned
    lanes = np.arange(32)[None, :]
    place = {"lane": lanes % 8 // 2, "reg": lanes % 2 + lanes // 8 * 2, "warp": np.arange(4)[:, None]}
    first = tile.offset(element_at(across(own), place))
    named = np.stack([(first ^ step.flip) + step.far for step in found.steps], axis=-1)
    assert len(np.unique(named)) == 64 * rows // 8
    assert all(
        bank_conflicts(named[0, :, step].tolist(), 2, 8, together=8) == 1 for step in range(named.shape[2])
    )
    for step in range(named.shape[2]):
        held = {**place, "reg": place["reg"] + 8 * step}
        assert np.array_equal(tile.offset(element_at(across(own), held)), named[:, :, step])


def test_few_matrices_are_not_turned() -> None:
    tile = Layout(((Digit(32, 64),), (Digit(64, 1),)), Swizzle(8, 8, 64))
    assert plan(sums(32), tile, "float16", "float32", turned=True) is None


def test_pairs_of_float32_are_not_turned() -> None:
    tile = Layout(((Digit(64, 32),), (Digit(32, 1), Digit(2, 64 * 32))), Swizzle(8, 4, 32))
    assert plan(sums(64), tile, "float32", turned=True) is None


@pytest.mark.parametrize("columns", [32, 64, 128])
def test_some_lanes_exchange_pairs_of_float32(columns: int) -> None:
    own, tile = sums(columns), slabs(columns, 32)
    found = plan(own, tile, "float32")
    assert found is not None
    assert found.lane_bit
    assert found.pair_bit
    pairs = accesses(found, own, tile)
    assert len(np.unique(pairs)) == 64 * columns // 2
    assert all(bank_conflicts(pairs[0, :, step].tolist(), 4, 2) == 1 for step in range(pairs.shape[2]))
    moved = np.where(np.arange(32) & found.lane_bit, found.pair_bit, 0)
    for step in range(pairs.shape[2]):
        held = element_at(own, {"lane": np.arange(32), "warp": 0, "reg": 2 * (step ^ moved)})
        assert np.array_equal(tile.offset(held), pairs[0, :, step])


def test_padded_rows_of_float32_need_no_exchange() -> None:
    found = plan(sums(64), Layout.padded((64, 64), 72), "float32")
    assert found is None or not found.lane_bit


@pytest.mark.parametrize(
    ("own", "tile", "dtype", "given"),
    [
        (sums(64), Layout.row_major((64, 64)), "float16", "float32"),  # eight rows in the same banks
        (sums(64), slabs(64, 64), "float8_e4m3fn", "float32"),
        (sums(64), slabs(64, 64), "int16", "float32"),
        (sums(64), slabs(64, 64), "bfloat16", "float16"),
        (sums(64), slabs(64, 32), "int32", "float32"),
        (Layout(((Digit(64, 1, "lane"),), (Digit(64, 1, "reg"),))), slabs(64, 64), "float16", "float16"),
    ],
)
def test_other_stores_stay(own: Layout, tile: Layout, dtype: str, given: str) -> None:
    assert plan(own, tile, dtype, given) is None
