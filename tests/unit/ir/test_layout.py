from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilec.ir.layout import Digit, Layout


def offsets(layout: Layout) -> list[int]:
    return [layout.offset(index) for index in itertools.product(*map(range, layout.shape))]


def test_row_major_counts_up():
    layout = Layout.row_major((3, 4, 5))
    assert offsets(layout) == list(range(60))
    assert layout.size == 60


def test_padded_rows_keep_their_distance():
    layout = Layout.padded((3, 5), 8)
    assert [layout.offset((row, 0)) for row in range(3)] == [0, 8, 16]
    assert layout.offset((2, 4)) == 20
    assert layout.size == 21


def test_pitch_below_the_row_is_refused():
    with pytest.raises(ValueError, match="rows of 5 elements do not fit a pitch of 4"):
        Layout.padded((3, 5), 4)


def test_panels_are_row_major_inside():
    layout = Layout.panels(rows=2, cols=10, width=4)
    assert layout.shape == (2, 12)
    assert [layout.offset((0, col)) for col in (0, 3, 4, 9)] == [0, 3, 8, 17]
    assert layout.offset((1, 4)) == 12


@given(st.integers(1, 6), st.integers(1, 40), st.integers(1, 17))
def test_panels_are_a_bijection(rows, cols, width):
    places = offsets(Layout.panels(rows, cols, width))
    assert sorted(places) == list(range(len(places)))


def test_wrong_rank_is_refused():
    with pytest.raises(ValueError, match="rank 1 got 2 indices"):
        Layout(((Digit(4, 1),),)).offset((1, 2))


def test_offsets_of_expressions():
    from tvm import sym, tirx

    i, j = tirx.Var("i", "int32"), tirx.Var("j", "int32")
    offset = Layout.panels(rows=8, cols=32, width=16).offset((i, j))
    analyzer = sym.Analyzer()
    analyzer.bind(j, tirx.const(17, "int32"))
    assert str(analyzer.simplify(offset)) == "i * 16 + 129"
