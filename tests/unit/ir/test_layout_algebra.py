"""The algebra of layouts against enumeration."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilec.ir.layout import Digit, Layout, Swizzle
from tilec.ir.layout_algebra import (
    bank_conflicts,
    canonical,
    element_at,
    extent_of,
    is_injective,
    places,
    same_threads,
    select,
    thread_terms,
)
from tilec.ir.text.parser import parse_layout
from tilec.ir.text.printer import format_layout

SPACES = ("reg", "lane", "warp")


@st.composite
def layouts(draw, injective: bool = True):
    """Two dimensions of up to four digits; injective ones number the places of each space without overlap."""
    used = dict.fromkeys(SPACES, 1)
    dims = []
    for _ in range(2):
        digits = []
        for size, space in draw(st.lists(st.tuples(st.integers(1, 4), st.sampled_from(SPACES)), max_size=3)):
            stride = used[space] if injective else draw(st.integers(1, 4))
            digits.append(Digit(size, stride, space))
            used[space] *= size
        dims.append(tuple(digits))
    return Layout(tuple(dims))


def elements(layout):
    return itertools.product(*(range(extent) for extent in layout.shape))


def place(layout, element):
    """Where an element lies, spaces that the layout does not use left at 0."""
    return {**dict.fromkeys(SPACES, 0), **places(layout, element)}


@given(layouts())
def test_the_inverse_finds_every_element(layout):
    for element in elements(layout):
        assert tuple(element_at(layout, place(layout, element))) == element


@settings(max_examples=200)
@given(layouts(injective=False))
def test_injective_means_that_no_two_elements_share_a_place(layout):
    seen = [tuple(sorted(place(layout, element).items())) for element in elements(layout)]
    if is_injective(layout):
        assert len(set(seen)) == len(seen)
    for space in SPACES:
        assert max(place(layout, element)[space] for element in elements(layout)) + 1 == extent_of(
            layout, space
        )


@given(layouts(injective=False))
def test_the_canonical_form_keeps_every_place(layout):
    short = canonical(layout)
    assert short.shape == layout.shape
    assert all(place(short, element) == place(layout, element) for element in elements(layout))
    assert canonical(short) == short


@given(layouts())
def test_a_slice_keeps_threads_and_packs_registers(layout):
    kept = select(layout, [0])
    registers = {place(kept, (index,))["reg"] for index in range(layout.shape[0])}
    assert registers == set(range(len(registers)))
    for index in range(layout.shape[0]):
        whole, part = place(layout, (index, 0)), place(kept, (index,))
        assert (whole["lane"], whole["warp"]) == (part["lane"], part["warp"])
    assert same_threads(layout, 0, kept, 0)


def test_threads_differ_where_their_digits_stand_elsewhere():
    first = Layout(((Digit(2, 1, "reg"), Digit(4, 1, "lane")),))
    second = Layout(((Digit(4, 1, "lane"), Digit(2, 1, "reg")),))
    assert not same_threads(first, 0, second, 0)
    assert thread_terms(first, 0) != thread_terms(second, 0)


@pytest.mark.parametrize(("width", "unit", "row"), [(8, 8, 64), (4, 8, 64), (2, 8, 64), (4, 4, 96)])
def test_a_swizzle_moves_every_address_to_its_own_place(width, unit, row):
    swizzle = Swizzle(width, unit, row)
    images = [swizzle.apply(address) for address in range(16 * row)]
    assert sorted(images) == list(range(16 * row))
    assert all(image // row == address // row for address, image in enumerate(images))


def test_a_swizzle_survives_the_text():
    layout = Layout(((Digit(8, 64),), (Digit(64, 1),)), Swizzle(8, 8, 64))
    assert parse_layout(format_layout(layout)) == layout


def test_bank_conflicts_count_the_busiest_bank():
    rows = range(32)
    assert bank_conflicts(list(rows), 4) == 1
    assert bank_conflicts([lane * 32 for lane in rows], 4) == 32
    assert bank_conflicts([lane * 33 for lane in rows], 4) == 1
    assert bank_conflicts([0 for _ in rows], 4) == 1
    assert bank_conflicts([lane * 8 for lane in rows], 2, width=8) == 1
    assert bank_conflicts([lane * 64 for lane in rows], 2, width=8) == 8
