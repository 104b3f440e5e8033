"""Loops with a version in which a choice comes out the same everywhere."""

from __future__ import annotations

from statements import HIDDEN

from tilec.backends.base import backend_of
from tilec.ir.text.parser import parse_kernel
from tilec.targets import parse_target

TARGET = parse_target("x86-64-v3")


def lowered(text: str) -> str:
    """The TIR of a kernel's launch."""
    backend, kernel = backend_of(TARGET), parse_kernel(text)
    for each in backend.passes(TARGET):
        kernel = each.apply(kernel, TARGET)
    return str(backend.lower_kernel(kernel, TARGET).launches[0].func)


def test_nothing_is_chosen_where_a_mask_hides_nothing():
    before, _, after = lowered(HIDDEN).partition("else:")
    assert "if n - k * 16 - 15 > 0 and 6 - k * 16 > 0:" in before
    assert "float32(-1.0)" not in before
    assert "float32(-1.0)" in after


def test_conditions_on_what_is_read_have_one_version():
    text = HIDDEN.replace("k * 16 + j <= i + 20", "X[i, 0] > 0.0")
    before, _, _ = lowered(text).partition("float32(-1.0)")
    assert "if n - k * 16 - 15 > 0" not in before
