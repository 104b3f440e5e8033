"""What integer expressions may be at least and at most."""

from __future__ import annotations

import pytest
from tvm import sym, tirx

from tilec.ir.analysis.numbers.ranges import as_data_has_it, as_types_have_it, as_written, bounds
from tilec.ir.exprs import same

BYTE, WORD = tirx.Var("byte", "uint8"), tirx.Var("word", "int32")


def number(value: int, dtype: str = "int32"):
    return tirx.const(value, dtype)


@pytest.mark.parametrize(
    ("expr", "least", "most"),
    [
        (tirx.Cast("int8", BYTE & number(15, "uint8")) - number(8, "int8"), -8, 7),
        ((WORD >> number(4)) & number(15), 0, 15),
        (BYTE, 0, 255),
        (tirx.Cast("int8", BYTE), -128, 127),
        (BYTE - number(8, "uint8"), 0, 255),
        (tirx.FloorDiv((WORD & number(0xFFFF)) * number(65536), number(65536)), -32768, 32767),
    ],
)
def test_bounds_hold_for_arithmetic_of_the_type(expr, least, most):
    assert bounds(expr, sym.Analyzer()) == (least, most)


def test_casts_that_hold_every_value_stay_what_they_are():
    x, analyzer = tirx.Var("x", "int32"), sym.Analyzer()
    wide = tirx.Cast("int64", x + 1) * tirx.const(3, "int64")
    assert as_types_have_it(wide, analyzer).same_as(wide)
    narrow = tirx.Cast("int64", tirx.Cast("int8", x))
    assert not same(as_types_have_it(narrow, analyzer), narrow)


def test_a_chain_of_sums_is_asked_for_data_once():
    asked: list[object] = []
    chain = WORD
    for _ in range(40):
        chain = chain * 3 + 7
    made = as_data_has_it(chain, sym.Analyzer(), asked.append)
    assert [name.same_as(WORD) for name in asked] == [True]
    assert as_written(made).same_as(made) is False
    assert same(as_written(made), chain)
