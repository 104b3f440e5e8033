"""Few rows times numbers of few bits that both halves of words look up: which they are, and their sums."""

from __future__ import annotations

import re

import numpy as np
import pytest
from compiled import Library, numpy_type
from test_sum_groups import CODES, FORMS, text, weights
from tvm import tirx

from tilec.backends.cpu.bit_numbers import bit_number
from tilec.backends.cpu.codegen.objects import assembly
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.ir.exprs import cast_to
from tilec.ir.text.parser import parse_kernel
from tilec.targets import parse_target

TARGET = "x86-64-v4+vnni+avx512bf16"
WORD = tirx.Var("word", "int32")


def _bits(shift: int, mask: int) -> tirx.Expr:
    return (WORD >> shift if shift else WORD) & mask


@pytest.mark.parametrize(
    ("number", "shift", "first"),
    [
        (cast_to(_bits(0, 15) - 8, "float32"), 0, -8.0),
        (cast_to(_bits(20, 15) ^ 8, "float32") - 8.0, 20, 0.0),
        (cast_to(tirx.Var("word", "uint32") >> 4 & 15, "float32") - 1.0, 4, -1.0),
        (tirx.Select(_bits(6, 3) == 0, tirx.const(0.75, "float32"), tirx.const(-1.5, "float32")), 6, 0.75),
    ],
)
def test_numbers_that_bits_choose(number: tirx.Expr, shift: int, first: float) -> None:
    found = bit_number(number)
    assert found is not None
    assert (found.shift, len(found.values)) == (shift, 32)
    assert np.uint32(found.values[0] << 16).view(np.float32) == first


@pytest.mark.parametrize(
    "number",
    [
        cast_to(_bits(0, 15), "float32") * 0.3,
        cast_to(_bits(0, 15), "float32") * tirx.Var("scale", "float32"),
        cast_to(_bits(0, 15) + _bits(4, 15), "float32"),
        cast_to(_bits(0, 63), "float32"),
        cast_to(_bits(0, 10), "float32"),
        cast_to(WORD, "float32"),
    ],
)
def test_other_numbers(number: tirx.Expr) -> None:
    """Numbers that bfloat16 rounds, that depend on more, on several fields, on more bits, or on some."""
    assert bit_number(number) is None


def _kernel(form: str, rows: int = 1, group: int = 64, wide: str = "float16") -> str:
    return text(form, rows, group, wide).replace("div=32", "div=256")


@pytest.mark.parametrize(
    ("target", "form", "wide", "each"),
    [
        (TARGET, "offset", "float16", 2),
        (TARGET, "offset", "bfloat16", 1),
        (TARGET, "pairs", "bfloat16", 1),
        (TARGET, "float offset", "bfloat16", 1),
        (TARGET, "zeros", "float16", 2),
        (TARGET, "unsigned words", "bfloat16", 1),
        (TARGET, "codes", "float16", 0),
        (TARGET, "offset", "float32", 0),
        (TARGET + "+amx", "offset", "bfloat16", 0),
    ],
)
def test_products_of_a_vector_of_words(target: str, form: str, wide: str, each: int) -> None:
    """Two instructions for a lookup beside float16, one beside bfloat16; none where numbers are a table's,
    activations have more bits, or multiply-adds are as fast."""
    parsed = parse_target(target)
    lowered = to_tir(lower(parse_kernel(_kernel(form, wide=wide)), parsed), parsed)
    code = assembly(lowered, parsed, "k")
    products, lookups = (len(re.findall(name, code)) for name in ("vdpbf16ps", "vpermw"))
    assert (lookups > 0) == (each > 0)
    assert products == each * lookups


@pytest.mark.parametrize(
    ("form", "rows", "group", "wide"),
    [
        ("offset", 1, 32, "float16"),
        ("signed bytes", 3, 64, "float16"),
        ("pairs", 1, 64, "bfloat16"),
        ("apart", 1, 32, "float16"),
        ("float offset", 2, 64, "bfloat16"),
        ("minima", 1, 32, "float16"),
        ("zeros in float32", 3, 64, "float16"),
        ("unsigned words", 1, 128, "bfloat16"),
        ("apart, with zeros", 4, 32, "bfloat16"),
    ],
)
def test_sums_of_pairs(form: str, rows: int, group: int, wide: str) -> None:
    """As exact as float32: activations of all their bits, groups of several lengths and with zero points,
    tiles that are not full and a last piece of few steps."""
    library = Library({"k": _kernel(form, rows, group, wide)}, TARGET)
    rng, (m, n, k) = np.random.default_rng(0), (4, 19, 8192 + 256)
    a = rng.standard_normal((m, k)).astype(numpy_type(wide))
    scales = (2.0 ** rng.integers(-3, 3, (n, k // 32))).astype(np.float16)
    zeros, y = rng.integers(0, 17, scales.shape).astype(np.uint8), np.zeros((16, 64), a.dtype)
    stored, each, _ = FORMS[form]
    limits = np.iinfo(stored)
    w = rng.integers(limits.min, limits.max, (n, k // each), stored, endpoint=True)
    c = np.full((m, n), np.nan, np.float32)
    library.run("k", [a, w, scales, zeros, CODES, y, c], {"M": m, "N": n, "K": k})
    dense = weights(form, w, scales, zeros, group)
    exact = a.astype(np.float64) @ dense.T
    largest = 16 * np.repeat(scales.astype(np.float64), group, axis=1)[:, :k]
    size = np.abs(a.astype(np.float64)) @ largest.T
    assert (np.abs(c - exact) <= 1e-7 * size).all()


@pytest.mark.parametrize(("form", "zero"), [("offset", 0), ("zeros", 8)])
def test_extreme_activations(form: str, zero: int) -> None:
    """The largest float16 and the least one, an infinite one, and NaN."""
    extremes = np.array([65504.0, -65504.0, 2.0**-24, np.inf, -np.inf, np.nan], np.float16)
    a = np.zeros((6, 256), np.float16)
    a[np.arange(6), np.arange(6) * 40 + 3] = extremes
    w, y = np.full((3, 128), 0xFC, np.uint8), np.zeros((16, 64), np.float16)
    scales = np.repeat(np.array([[1.0], [-2.0], [0.5]], np.float16), 8, axis=1)
    c = np.zeros((6, 3), np.float32)
    args = [a, w, scales, np.full(scales.shape, zero, np.uint8), CODES, y, c]
    Library({"k": _kernel(form)}, TARGET).run("k", args, {"M": 6, "N": 3, "K": 256})
    expected = (extremes.astype(np.float32)[:, None] * 7) * scales[:, 0].astype(np.float32)
    np.testing.assert_array_equal(c, expected)
