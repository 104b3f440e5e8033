"""The benchmark of instructions counts right, and microkernels of aarch64 take no more than they have to."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[4] / "benchmarks" / "cpu"))

from instructions import PRODUCTS, counts, inner_loops, least

LOOPS = """
f:
	mov	x0, #4
.LBB0_1:
	cbz	x1, .LBB0_4
.LBB0_2:
	ldp	q0, q1, [x0], #32
	fmla	v2.4s, v0.4s, v1.s[0]
	// %bb.3:
	b.ne	.LBB0_2
	add	x2, x2, #1
	b	.LBB0_1
.LBB0_4:
	ret
"""


def test_loops_within_no_other_are_counted() -> None:
    (found,) = inner_loops(LOOPS)
    assert found.counts == {"ldp": 1, "fmla": 1, "b.ne": 1}
    assert (found.products, found.stores) == (1, 0)


def test_the_least_is_that_of_the_best_block() -> None:
    """8 x 12 sums by lane: 24 products, 2.5 loads of two vectors; 10 x 10 by pairs: 25 and 5."""
    assert least("fmla") == pytest.approx(26.5 / 24)
    assert least("bfmmla") == pytest.approx(30 / 25)


@pytest.mark.slow
def test_products_take_no_more_than_a_tenth_over_the_least() -> None:
    found = counts()
    assert {each.instruction for each in found} == set(PRODUCTS)
    for each in found:
        assert each.counted <= 1.1 * each.ideal, f"{each.kernel} on {each.target}"
        assert each.stores == 0, f"{each.kernel} on {each.target} spills"
