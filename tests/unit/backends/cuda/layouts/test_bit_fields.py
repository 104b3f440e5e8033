"""Packed numbers by the arithmetic that takes them out, and places of vectors in swizzled tiles."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import ir as tvm_ir
from tvm import sym, tirx

from tilec.backends.cuda.analysis.accesses.bit_fields import bit_field
from tilec.backends.cuda.emit.numbers.quotients import bytes_to, quotient
from tilec.backends.cuda.packed_weights.packing import evaluated
from tilec.ir.exprs import walk

J = tirx.Var("j", "int32")
BYTE = tirx.decl_buffer((64,), "uint8", name="byte")[J // 2]
SIGNED = tirx.decl_buffer((64,), "int8", name="signed")[J]
WORD = tirx.decl_buffer((64,), "int32", name="word")[J // 8]
NIBBLE = J % 2 * 4


def const(value, dtype):
    return tirx.const(value, dtype)


def extended(byte, by):
    """A byte's lowest bits with a sign, the way through the top of it."""
    top = tirx.reinterpret("int8", tirx.shift_left(byte, const(by, "uint8")))
    return tirx.shift_right(top, const(by, "int8"))


@pytest.mark.parametrize(
    ("number", "width", "signed", "low", "high"),
    [
        (tirx.shift_right(BYTE, NIBBLE.astype("uint8")) & const(15, "uint8"), 4, False, 0, 15),
        ((BYTE & const(15, "uint8")).astype("int8") - const(8, "int8"), 4, False, -8, 7),
        (tirx.floormod(BYTE, const(16, "uint8")), 4, False, 0, 15),
        (tirx.floordiv(BYTE, const(16, "uint8")), 4, False, 0, 15),
        (SIGNED, 8, True, -128, 127),
        (tirx.shift_right(SIGNED, const(4, "int8")), 4, True, -8, 7),
        (tirx.shift_right(WORD, J % 8 * 4) & const(15, "int32"), 4, False, 0, 15),
        (tirx.shift_right(WORD, J % 2 * 16) & const(1023, "int32"), 10, False, 0, 1023),
        (SIGNED.astype("int32") + const(300, "int32"), 8, True, 172, 427),
        (extended(BYTE & const(15, "uint8"), 4), 4, True, -8, 7),
        (extended(tirx.shift_right(BYTE, const(6, "uint8")), 6) + const(1, "int8"), 2, True, -1, 2),
        (tirx.shift_right(tirx.shift_left(WORD & const(7, "int32"), 29), 29), 3, True, -4, 3),
    ],
)
def test_a_number_is_some_bits_of_an_element(number, width, signed, low, high):
    analyzer = sym.Analyzer()
    analyzer.bind(J, tvm_ir.Range(0, 64))
    found = bit_field(number, analyzer)
    assert (found.width, found.signed, found.low, found.high) == (width, signed, low, high)


@pytest.mark.parametrize(
    "number",
    [
        BYTE * const(3, "uint8"),
        BYTE & const(10, "uint8"),  # no run of bits
        (SIGNED - const(1, "int8")) & const(15, "int8"),  # of a sum
        SIGNED + const(1, "int8"),  # may wrap around
        BYTE.astype("int8"),
        tirx.shift_right(SIGNED, J % 8) & const(15, "int8"),  # signs are shifted in
        tirx.shift_right(BYTE, J.astype("uint8")),  # beyond the byte
        BYTE.astype("float16"),
        extended(BYTE & const(7, "uint8"), 4),  # the highest bit is no sign
        tirx.shift_right(tirx.shift_left(WORD & const(15, "int32"), 28).astype("int8").astype("int32"), 28),
    ],
)
def test_other_numbers_are_not(number):
    analyzer = sym.Analyzer()
    analyzer.bind(J, tvm_ir.Range(0, 64))
    assert bit_field(number, analyzer) is None


@pytest.mark.parametrize(("count", "size"), [(1, 1), (2, 2), (4, 8)])
def test_a_swizzled_place_in_bytes_is_what_it_is_in_elements(count, size):
    row, column = tirx.Var("row", "int32"), tirx.Var("column", "int32")
    analyzer = sym.Analyzer()
    for var, extent in ((row, 16), (column, 64 // count)):
        analyzer.bind(var, tvm_ir.Range(0, extent))
    wide, near = ((each).astype("uint32") for each in (row, column * count))
    phase = tirx.truncmod(tirx.truncdiv(wide, const(2, "uint32")), const(4, "uint32"))
    moved = tirx.bitwise_xor(near, phase * const(16, "uint32"))
    place = (wide * const(64, "uint32")).astype("int32") + moved.astype("int32")
    rows, columns = np.arange(16, dtype=np.int32)[:, None], np.arange(64 // count, dtype=np.int32)[None, :]
    values = {row: rows, column: columns}
    made = evaluated(bytes_to(place, count, size, analyzer), values, 16, 64 // count)
    wanted = (rows * 64 + (columns * count ^ rows // 2 % 4 * 16)) * size // count
    assert (made == wanted).all()


@pytest.mark.parametrize("step", [4, 6, 16])
def test_a_place_in_bytes_is_the_same_where_several_summands_lie_in_a_chunk(step):
    row, lane, register = (tirx.Var(name, "int32") for name in ("row", "lane", "register"))
    analyzer = sym.Analyzer()
    for var, extent in ((row, 16), (lane, 4), (register, 4)):
        analyzer.bind(var, tvm_ir.Range(0, extent))
    wide, near = ((each).astype("uint32") for each in (row, lane + register * step))
    phase = tirx.truncmod(tirx.truncdiv(wide, const(2, "uint32")), const(4, "uint32"))
    moved = tirx.bitwise_xor(near, phase * const(16, "uint32"))
    place = (wide * const(64, "uint32")).astype("int32") + moved.astype("int32")
    rows, columns = np.arange(16, dtype=np.int32)[:, None], np.arange(16, dtype=np.int32)[None, :]
    values = {row: rows, lane: columns % 4, register: columns // 4}
    made = evaluated(bytes_to(place, 1, 1, analyzer), values, 16, 16)
    wanted = rows * 64 + (columns % 4 + columns // 4 * step ^ rows // 2 % 4 * 16)
    assert (made == wanted).all()


def test_vectors_of_more_than_a_chunk_have_no_such_place():
    column = tirx.Var("column", "uint32")
    phase = tirx.truncmod(column, const(4, "uint32"))
    place = tirx.bitwise_xor(column * const(8, "uint32"), phase * const(4, "uint32"))
    assert bytes_to(place, 8, 16, sym.Analyzer()) is None


@pytest.mark.parametrize(("shift", "whole"), [(1, True), (3, True), (-1, False)])
def test_the_vector_below_a_place_is_told_without_a_division(shift, whole):
    row, lane = tirx.Var("row", "int32"), tirx.Var("lane", "int32")
    analyzer = sym.Analyzer()
    for var, extent in ((row, 16), (lane, 16)):
        analyzer.bind(var, tvm_ir.Range(0, extent))
    four = const(4, "int32")
    last = lane * four + const(shift, "int32")
    place = row * const(68, "int32") + tirx.FloorDiv(last, four) * four
    made = quotient(place, 4, analyzer)
    assert made is not None
    assert whole is not any(isinstance(node, (tirx.FloorDiv, tirx.Div)) for node in walk(made))
    rows, lanes = np.arange(16, dtype=np.int32)[:, None], np.arange(1, 16, dtype=np.int32)[None, :]
    found = evaluated(made, {row: rows, lane: lanes}, 16, 15)
    assert (found == rows * 17 + (lanes * 4 + shift) // 4).all()
