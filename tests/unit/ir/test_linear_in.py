"""Factors of variables in linear expressions, over casts of indices to 64 bits."""

from __future__ import annotations

import pytest
from tvm import tirx

from tilec.ir.exprs import int_value, linear_in


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("factor", [1, -3])
def test_variables_beside_casts_have_their_factors(dtype: str, factor: int) -> None:
    """A variable of 64 bits stands beside casts of others as it is."""
    place, first = tirx.Var("place", dtype), tirx.Var("first", "int32")
    own = place if dtype == "int64" else tirx.Cast("int64", place)
    found = linear_in(tirx.Cast("int64", first) + own * tirx.const(factor, "int64") + 5, [place, first])
    assert list(map(int_value, found)) == [factor, 1, 5]


def test_a_variable_that_a_cast_hides_has_no_factor() -> None:
    place = tirx.Var("place", "int32")
    assert linear_in(tirx.Cast("int64", tirx.floordiv(place, 2)), [place]) == []
