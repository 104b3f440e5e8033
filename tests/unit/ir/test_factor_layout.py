"""Tables of places as digit maps, against brute force."""

from __future__ import annotations

import random
from itertools import product

import numpy as np
import pytest

from tilec.ir.factor_layout import factored
from tilec.ir.layout import Digit, Layout, Swizzle
from tilec.ir.layout_algebra import chunk, row_pitch, stacked

SAMPLES = [
    Layout.row_major((32, 64)),
    Layout.padded((32, 64), 72),
    Layout.padded((32, 64), 65),
    Layout.panels(16, 64, 8),
    Layout(((Digit(16, 1),), (Digit(4, 32), Digit(2, 16)))),
    Layout(Layout.row_major((32, 64)).digits, Swizzle(8, 8, 64)),
    Layout(Layout.row_major((64, 32)).digits, Swizzle(4, 8, 64)),
    Layout(Layout.row_major((2, 16, 128)).digits, Swizzle(8, 4, 128)),
]


def table(layout: Layout) -> np.ndarray:
    return layout.offset(np.indices(layout.shape))


@pytest.mark.parametrize("layout", SAMPLES)
def test_a_table_gives_back_its_layout(layout):
    found = factored({"addr": table(layout)})
    assert found is not None
    assert np.array_equal(table(found), table(layout))


def test_mixed_digits_are_found():
    draw = random.Random(3)
    for _ in range(100):
        sizes = [draw.choice((2, 3, 4, 8)) for _ in range(draw.randint(1, 4))]
        strides = [int(np.prod(sizes[:at])) for at in range(len(sizes))]
        digits = [Digit(size, stride) for size, stride in zip(sizes, strides, strict=True)]
        draw.shuffle(digits)
        cut = draw.randint(0, len(digits))
        layout = Layout((tuple(digits[:cut]), tuple(digits[cut:])))
        found = factored({"addr": table(layout)})
        assert found is not None
        assert np.array_equal(table(found), table(layout))


@pytest.mark.parametrize(
    "places",
    [
        np.array([0, 3, 1, 7, 2, 9, 4, 5]),  # no digits
        np.array([1, 2, 3, 4]),  # does not begin at 0
        np.array([[0, 1], [0, 1]]),  # two elements in one place
    ],
)
def test_what_is_no_digit_map_is_none(places):
    assert factored({"addr": places}) is None


@pytest.mark.parametrize("layout", SAMPLES)
def test_chunks_lie_side_by_side(layout):
    count, places = chunk(layout), table(layout)
    for group in places.reshape(-1, count):
        assert group[0] % count == 0
        assert np.array_equal(group, group[0] + np.arange(count))


@pytest.mark.parametrize("layout", SAMPLES)
def test_rows_that_have_a_pitch_keep_to_themselves(layout):
    pitch = row_pitch(layout)
    if pitch is None:
        return
    places = table(layout)
    for row, lead in product(range(layout.shape[-2]), range(layout.shape[0] if len(layout.shape) > 2 else 1)):
        own = places[lead][row] if len(layout.shape) > 2 else places[row]
        base = (lead * layout.shape[-2] + row) * pitch
        assert {int(place) - base for place in own} == set(range(layout.shape[-1]))


def test_versions_of_a_tile_do_not_meet():
    for layout in SAMPLES:
        places = table(stacked(layout, 3))
        assert len(np.unique(places)) == places.size
        assert np.array_equal(places[1] - places[1].min(), places[0])
