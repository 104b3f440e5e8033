"""A body is emitted in vain once, to see which bounds are open, for as long as nothing new is known."""

from __future__ import annotations

import pytest

from tilec.backends.base import backend_of
from tilec.backends.cpu.emit.context import LaneContext
from tilec.ir.text.parser import parse_kernel
from tilec.targets import parse_target

TARGET = parse_target("x86-64-v3")
TEXT = """
kernel("scale")
n = dim(int32)
X = tensor(float32, (n, 64), ("n", "64"), access="in")
Y = tensor(float32, (n, 64), ("n", "64"), access="out")
with launch({blocks}, threads=(64, 1, 1)) as (b,):
    for i, j in parallel({rows}, 64):
        row = {row}
        Y[{at}, j] = X[{at}, j] + 1.0
"""


@pytest.fixture
def looks(monkeypatch):
    """Counts the dry runs while a kernel's text is lowered."""
    recording, found = LaneContext.recording, []
    monkeypatch.setattr(LaneContext, "recording", lambda self: found.append(1) or recording(self))

    def count(**parts: object) -> int:
        backend, kernel = backend_of(TARGET), parse_kernel(TEXT.format(**parts))
        for each in backend.passes(TARGET):
            kernel = each.apply(kernel, TARGET)
        found.clear()
        backend.lower_kernel(kernel, TARGET)
        return len(found)

    return count


def test_one_look_serves_both_loops_of_a_nest(looks):
    assert looks(blocks="n", rows=2, row="i", at="b") == 1


def test_a_name_that_moves_in_front_of_the_loops_keeps_the_look(looks):
    assert looks(blocks="n", rows=2, row="b + 0", at="row") == 1


def test_each_part_of_a_split_range_has_a_look(looks):
    assert looks(blocks="(n + 3) // 4", rows=4, row="b * 4 + i", at="row") > 1
