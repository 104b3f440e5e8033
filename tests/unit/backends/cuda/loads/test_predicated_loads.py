"""Loads with a condition, of which TMA brings the box: what stands beside the element has to be 0."""

from __future__ import annotations

import pytest

from tilec.backends.cuda.attention.assign.predicated_loads import plain_loads
from tilec.backends.cuda.attention.nodes import ZeroRows
from tilec.ir.nodes import walk
from tilec.ir.text.parser import parse_kernel

TEXT = """
kernel("k")
X = tensor(float16, (64, 64), ("64", "64"), access="in")
with launch(1, threads=(128, 1, 1)) as (bx,):
    s = alloc(float16, (64, 64), "shared.dyn")
    for i, j in parallel(64, 64):
        s[i, j] = if_then_else(i < 3, X[i, j], {other})
"""


@pytest.mark.parametrize(
    ("other", "rows"),
    [("float16(0.0)", 1), ("float16(1.0)", 0), ("cast(float16, X[j, i] + X[i, j])", 0), ("X[j, i]", 0)],
)
def test_rows_of_zeros_stand_for_a_zero_alone(other, rows):
    (launch,) = parse_kernel(TEXT.format(other=other)).launches
    made = plain_loads(launch.body)
    assert sum(isinstance(stmt, ZeroRows) for stmt in walk(made)) == rows
