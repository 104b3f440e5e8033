"""Few rows times weights of few bits: numbers are multiplied as they are stored, and scaled by groups."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest
from compiled import Library, numpy_type
from test_group_bytes import turned

from tilec.backends.pipeline import lower
from tilec.ir.nodes import Gemm, If, walk
from tilec.ir.text.parser import parse_kernel
from tilec.ir.text.printer import format_kernel
from tilec.targets import parse_target

#: Weights of 64 along K at a time; ``more`` stands behind what makes their tile.
TEXT = """
kernel("k")
M = dim(int32)
N = dim(int32)
K = dim(int32, div=32)
A = tensor({wide}, (M, K), ("M", "K"), access="in")
W = tensor({stored}, (N, K // {each}), ("N", "K // {each}"), access="{access}")
S = tensor(float16, (N, (K + 31) // 32), ("N", "(K + 31) // 32"), access="in")
Z = tensor(uint8, (N, (K + 31) // 32), ("N", "(K + 31) // 32"), access="in")
L = tensor(float32, (2, 16), ("2", "16"), access="in")
Y = tensor({wide}, (16, 64), ("16", "64"), access="inout")
C = tensor(float32, (M, N), ("M", "N"), access="out")
with launch((N + 15) // 16, (M + {m} - 1) // {m}, threads=(128, 1, 1)) as (bx, by):
    As = alloc({wide}, ({m}, 64), "shared.dyn")
    packed = alloc({stored}, (16, {packed}), "shared.dyn")
    plain = alloc({wide}, (16, 64), "shared.dyn")
    Ws = alloc({wide}, (16, 64), "shared.dyn")
    acc = alloc(float32, ({m}, 16), "local.fragment")
    codes = alloc(float32, (16,), "shared.dyn")
    copy(L[1:+1, 0:+16], codes[0:+16])
    fill(acc[0:+{m}, 0:+16], {first})
    for ko in pipelined(0, (K + 63) // 64, num_stages=2):
        copy(A[by * {m}:+{m}, ko * 64:+64], As[0:+{m}, 0:+64])
        copy(W[bx * 16:+16, ko * {packed}:+{packed}], packed[0:+16, 0:+{packed}])
        for j, k in parallel(16, 64):
            group = (ko * 64 + k) // {group}
            plain[j, k] = cast({wide}, {value})
        copy(plain[0:+16, 0:+64], Ws[0:+16, 0:+64])
        {more}
        gemm(As[0:+{m}, 0:+64], Ws[0:+16, 0:+64], acc[0:+{m}, 0:+16], trans_b=True, clear=False)
    copy(acc[0:+{m}, 0:+16], C[by * {m}:+{m}, bx * 16:+16])
"""
SCALE, ZERO = "cast(float32, S[bx * 16 + j, group])", "cast(int32, Z[bx * 16 + j, group])"
NIBBLE = "(cast(int32, packed[j, k // 2]) >> k % 2 * 4 & 15)"
#: Numbers of a byte 16 along K apart, and bytes that are shifted as they are.
APART = "cast(int32, packed[j, k // 32 * 16 + k % 16]) >> k % 32 // 16 * 4"
SHORT = "packed[j, k // 2] >> cast(uint8, k % 2 * 4)"
UNSIGNED = "(packed[j, k // 8] >> cast(uint32, k % 8 * 4) & uint32(15))"
#: Values of weights by the type that stores them, and how many it stores; all are scaled.
FORMS = {
    "offset": ("uint8", 2, f"cast(float32, {NIBBLE} - 8) * {SCALE}"),
    "zeros": ("uint8", 2, f"{SCALE} * cast(float32, {NIBBLE} - {ZERO})"),
    "zeros in float32": ("uint8", 2, f"(cast(float32, {ZERO}) - cast(float32, {NIBBLE})) * {SCALE}"),
    "minima": ("uint8", 2, f"cast(float32, {NIBBLE}) * {SCALE} + cast(float32, {ZERO}) * {SCALE}"),
    "words": ("int32", 8, f"cast(float32, (packed[j, k // 8] >> k % 8 * 4 & 15) - 8) * {SCALE}"),
    "unsigned words": ("uint32", 8, f"cast(float32, {UNSIGNED}) * {SCALE} - cast(float32, {ZERO}) * {SCALE}"),
    "signed words": ("uint32", 8, f"cast(float32, (cast(int32, {UNSIGNED}) ^ 8) - 8) * {SCALE}"),
    "pairs": ("uint8", 4, f"cast(float32, cast(int32, packed[j, k // 4]) >> k % 4 * 2 & 3) * {SCALE}"),
    "signed bytes": ("int8", 2, f"cast(float32, ({NIBBLE} ^ 8) - 8) * {SCALE}"),
    "codes": ("uint8", 2, f"L[1, {NIBBLE}] * {SCALE}"),
    "copied codes": ("uint8", 2, f"{SCALE} * codes[{NIBBLE}]"),
    "shifted codes": ("int32", 8, f"(L[1, packed[j, k // 8] >> k % 8 * 4 & 15] + 0.5) * {SCALE}"),
    "apart": ("uint8", 2, f"cast(float32, ({APART} & 15) - 8) * {SCALE}"),
    "apart, with zeros": ("int8", 2, f"cast(float32, ({APART} & 15) - {ZERO}) * {SCALE}"),
    "float offset": ("uint8", 2, f"(cast(float32, {SHORT} & uint8(15)) - 8.0) * {SCALE}"),
    "bytes": ("int8", 1, f"cast(float32, packed[j, k]) * {SCALE}"),
    "plain bytes": ("int8", 1, "cast(float32, packed[j, k])"),
}
FLOAT8 = ("float8_e4m3fn", "float8_e5m2")
#: What tables have, the second row for weights; exact with few bits.
CODES = np.float32([[0] * 16, np.arange(16) ** 2 / 16 - 4])


def text(form: str = "offset", rows: int = 1, group: int = 32, wide: str = "float16", **other: str) -> str:
    stored, each, value = FORMS[form]
    parts = {"stored": stored, "value": value, "more": "", "access": "in", "first": "0.0"} | other
    return TEXT.format(m=rows, group=group, wide=wide, each=each, packed=64 // each, **parts)


def has_product(**parts: object) -> bool:
    """Whether a product is left, for which a tile of weights is made."""
    kernel = lower(parse_kernel(text(**parts)), parse_target("x86-64-v3"), until="sum_groups")
    return any(isinstance(stmt, Gemm) for stmt in walk(kernel.body))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rows", [1, 4])
def test_few_rows_take_numbers_as_they_are_stored(form: str, rows: int) -> None:
    group = 64 if form in ("words", "unsigned words", "signed words", "pairs", "shifted codes") else 32
    few = rows == 1 or form != "plain bytes"  # which products of several rows read
    assert has_product(form=form, rows=rows, group=group) != few
    assert has_product(form=form, rows=rows, group=64) != few


@pytest.mark.parametrize("stored", FLOAT8)
def test_few_rows_take_floats_of_eight_bits(stored: str) -> None:
    """One row, and two that are scaled, have no tile of weights."""
    rows = {"plain bytes": 1, "bytes": 2}
    for form, few in rows.items():
        assert not has_product(form=form, rows=few, stored=stored)
        assert has_product(form=form, rows=few + 1, stored=stored)


def test_results_of_floats_of_eight_bits() -> None:
    """All of them, denormal numbers, infinities and NaN too, the last ones in weights of their own."""
    cases = list(zip(FLOAT8, ("plain bytes", "bytes"), strict=True))
    kernels = {str(at): text(form, stored=stored, wide="float32") for at, (stored, form) in enumerate(cases)}
    library = Library(kernels, "x86-64-v3")
    rng, (n, k) = np.random.default_rng(0), (21, 256)
    a, y = rng.integers(-4, 5, (1, k)).astype(np.float32), np.zeros((16, 64), np.float32)
    scales, zeros = np.full((n, k // 32), 0.5, np.float16), np.zeros((n, k // 32), np.uint8)
    for at, (stored, form) in enumerate(cases):
        w = np.tile(np.arange(256, dtype=np.uint8), (n, 1)).view(getattr(ml_dtypes, stored))
        w[1:] = np.where(np.isfinite(w[1:].astype(np.float32)), w[1:], 0)
        c = np.zeros((1, n), np.float32)
        library.run(str(at), [a, w, scales, zeros, CODES, y, c], {"M": 1, "N": n, "K": k})
        dense = w.astype(np.float64) * (1.0 if form == "plain bytes" else 0.5)
        with np.errstate(invalid="ignore"):
            np.testing.assert_allclose(c, a.astype(np.float64) @ dense.T, rtol=1e-5)


@pytest.mark.parametrize(
    "parts",
    [
        {"form": "words", "group": 32},
        {"group": 8},
        {"access": "inout", "more": "W[0, 0] = uint8(1)"},
        {"more": "copy(Ws[0:+16, 0:+64], Y[0:+16, 0:+64])"},
        {"more": "Ws[0, 0] = float16(1.0)"},
        {"value": f"cast(float32, {NIBBLE}) + 1.0"},
        {"value": f"L[j % 2, {NIBBLE}] * {SCALE}"},
        {"value": f"L[1, {NIBBLE}]"},
        {"form": "copied codes", "more": "codes[0] = 1.0"},
        {"value": f"exp(cast(float32, {NIBBLE}) * {SCALE})"},
        {"value": f"cast(float32, {NIBBLE}) * {SCALE} * cast(float32, {NIBBLE})"},
        {"value": f"cast(float32, cast(int32, packed[j, 31 - k // 2]) & 15) * {SCALE}"},
        {"value": f"cast(float8_e4m3fn, cast(float32, {NIBBLE}) * {SCALE})"},
    ],
)
def test_other_tiles_stay(parts: dict[str, object]) -> None:
    """Groups that fill no vector, what others read or write, elements beyond the tensor that are
    not 0, tables that change, values that are no scaled numbers, and types that hold none."""
    assert has_product(**parts)


@pytest.mark.parametrize(
    ("form", "rows", "known", "branches"),
    [
        ("offset", 16, "", 2),
        ("offset", 16, ", div=2", 1),
        ("offset", 16, ", div=16", 0),
        ("plain bytes", 16, "", 2),
        ("plain bytes", 4, "", 1),
        ("plain bytes", 4, ", div=2", 0),
    ],
)
def test_tiles_of_many_rows_may_have_few(form: str, rows: int, known: str, branches: int) -> None:
    """One row and up to four are told apart, where a tile may have as few."""
    kernel = parse_kernel(text(form, rows=rows).replace("M = dim(int32)", f"M = dim(int32{known})"))
    stmts = list(walk(lower(kernel, parse_target("x86-64-v3"), until="sum_groups").body))
    assert sum(isinstance(stmt, If) for stmt in stmts) == branches
    assert any(isinstance(stmt, Gemm) for stmt in stmts)


def test_tiles_of_many_rows_have_results_of_few() -> None:
    """Rows of all branches: fewer than a tile, and behind whole ones."""
    library = Library({"k": text(rows=16)}, "x86-64-v3")
    rng, (n, k) = np.random.default_rng(0), (21, 160)
    w = rng.integers(0, 256, (n, k // 2)).astype(np.uint8)
    scales, zeros = np.full((n, k // 32), 0.25, np.float16), np.zeros((n, k // 32), np.uint8)
    for m in (1, 2, 5, 17, 36):
        a = rng.integers(-4, 5, (m, k)).astype(np.float16)
        c, y = np.full((m, n), np.nan, np.float32), np.zeros((16, 64), a.dtype)
        library.run("k", [a, w, scales, zeros, CODES, y, c], {"M": m, "N": n, "K": k})
        expected = a.astype(np.float64) @ weights("offset", w, scales, zeros, 32).T
        np.testing.assert_array_equal(c, expected.astype(np.float32))


def test_weights_may_be_the_first_operand() -> None:
    """One column, in tiles of as many and of more."""
    kernels = {"one": turned(text(), 1), "many": turned(text(rows=5), 5)}
    library = Library(kernels, "x86-64-v3")
    rng, (n, k) = np.random.default_rng(0), (21, 160)
    w, a = rng.integers(0, 256, (n, k // 2), np.uint8), rng.integers(-4, 5, (1, k)).astype(np.float16)
    scales, zeros = np.full((n, k // 32), 0.25, np.float16), np.zeros((n, k // 32), np.uint8)
    for name in kernels:
        c, y = np.full((n, 1), np.nan, np.float32), np.zeros((16, 64), a.dtype)
        library.run(name, [a, w, scales, zeros, CODES, y, c], {"M": 1, "N": n, "K": k})
        np.testing.assert_array_equal(c, weights("offset", w, scales, zeros, 32) @ a.astype(np.float64).T)


def weights(form: str, stored: np.ndarray, scales: np.ndarray, zeros: np.ndarray, group: int) -> np.ndarray:
    """The float64 weights of a form."""
    kind, each, _ = FORMS[form]
    bits = 8 if each == 1 else np.dtype(kind).itemsize * 8 // each
    numbers = stored.astype(np.int64)[..., None] >> np.arange(each) * bits
    if form.startswith("apart"):
        numbers = numbers.reshape(len(stored), -1, 16, each).swapaxes(2, 3)
    if form == "plain bytes":
        return stored.astype(np.float64)
    numbers = (numbers if each == 1 else numbers & (1 << bits) - 1).reshape(len(stored), -1)
    if form.endswith("codes"):
        numbers = CODES[1].astype(np.float64)[numbers]
    spread = [
        np.repeat(each.astype(np.float64), group, axis=1)[:, : numbers.shape[1]] for each in (scales, zeros)
    ]
    less = {"offset": 8, "words": 8, "zeros": spread[1], "zeros in float32": spread[1], "minima": -spread[1]}
    less |= {
        "unsigned words": spread[1],
        "shifted codes": -0.5,
        "apart": 8,
        "apart, with zeros": spread[1],
        "float offset": 8,
    }
    if form.startswith("signed "):
        numbers = (numbers ^ 8) - 8
    sign = -1 if form == "zeros in float32" else 1
    return sign * (numbers - less.get(form, 0)) * spread[0]


def each_form(cases: dict[tuple[str, int, object], tuple[str, ...]]) -> list[tuple[str, str, int, object]]:
    """A case for each form of those that have a target, rows and a third thing in common."""
    return [(form, *rest) for rest, forms in cases.items() for form in forms]


CONVERTED = {
    ("x86-64-v3", 1, "float16"): ("offset", "zeros in float32", "words", "pairs", "codes", "plain bytes"),
    ("x86-64-v3", 2, "float32"): ("signed words", "unsigned words", "apart"),
    ("x86-64-v4", 3, "bfloat16"): ("zeros", "minima", "bytes", "shifted codes", "apart, with zeros"),
}


@pytest.mark.parametrize(("form", "target", "rows", "wide"), each_form(CONVERTED))
def test_results_are_those_of_converted_weights(form: str, target: str, rows: int, wide: str) -> None:
    """Exact, for activations and scales of few bits: rows that fill no tile, a K of several pieces whose last
    step is half empty, and sums that begin at something."""
    kernel = text(form, rows, 64, wide, first="0.5")
    check_form(kernel, target, form, (5, 37, 4096 + 96), 64, wide, first=0.5)


def check_form(
    kernel: str, target: str, form: str, sizes: tuple[int, int, int], group: int, wide: str, first: float
) -> None:
    """Results of a kernel of a form are those of its weights in float64."""
    rng, (m, n, k) = np.random.default_rng(0), sizes
    a = rng.integers(-4, 5, (m, k)).astype(numpy_type(wide))
    scales = (2.0 ** rng.integers(-3, 3, (n, k // 32))).astype(np.float16)
    zeros = rng.integers(0, 16, scales.shape).astype(np.uint8)
    y = np.zeros((16, 64), a.dtype)
    stored, each, _ = FORMS[form]
    limits = np.iinfo(stored)
    w = rng.integers(limits.min, limits.max, (n, k // each), stored, endpoint=True)
    c = np.full((m, n), np.nan, np.float32)
    Library({"k": kernel}, target).run("k", [a, w, scales, zeros, CODES, y, c], {"M": m, "N": n, "K": k})
    expected = a.astype(np.float64) @ weights(form, w, scales, zeros, group).T + first
    np.testing.assert_array_equal(c, expected.astype(np.float32))


WORDS = {
    ("x86-64-v3", 1, 32): ("offset", "zeros", "signed bytes", "copied codes", "apart, with zeros"),
    ("x86-64-v3", 2, 64): ("zeros", "float offset", "pairs", "signed bytes"),
    ("x86-64-v4", 1, 32): ("offset", "signed bytes", "minima", "zeros in float32", "codes", "apart"),
    ("x86-64-v4", 4, 64): ("zeros in float32", "pairs", "float offset"),
    ("x86-64-v4", 3, 128): ("zeros", "codes"),
}


@pytest.mark.parametrize(("form", "target", "rows", "group"), each_form(WORDS))
def test_bytes_are_read_as_words(form: str, target: str, rows: int, group: int) -> None:
    """Exact, for steps of several groups and a last piece of few of them; where K may have a step that is
    not whole, bytes stay bytes."""
    plain = text(form, rows, group)
    kernel = plain.replace("div=32", "div=256")
    assert "word = " in _summed(kernel)
    assert "word = " not in _summed(plain)
    check_form(kernel, target, form, (5, 19, 4096 + 256), group, "float16", first=0.0)


@pytest.mark.parametrize(
    ("group", "known", "steps"),
    [(128, 128, 64), (128, 64, 128), (256, 512, 64), (64, 128, 128), (32, 128, 256)],
)
def test_groups_of_several_trips(group: int, known: int, steps: int) -> None:
    """Groups of up to 128, which two trips share, where their number is surely even; else those of a trip."""
    summed = _summed(text("words", 1, group).replace("div=32", f"div={known}"))
    assert f"steps = alloc(float32, ({steps},)" in summed


def _summed(kernel: str, target: str = "x86-64-v4") -> str:
    return format_kernel(lower(parse_kernel(kernel), parse_target(target), until="sum_groups"))


@pytest.mark.parametrize(
    ("form", "target", "rows", "placed"),
    [
        ("offset", "x86-64-v3", 1, True),
        ("offset", "aarch64", 2, True),
        ("apart", "x86-64-v3", 1, True),
        ("float offset", "x86-64-v3", 1, True),
        ("words", "x86-64-v2", 1, True),
        ("unsigned words", "x86-64-v3", 2, True),
        ("signed bytes", "x86-64-v3", 1, True),
        ("signed words", "x86-64-v3", 1, True),
        ("zeros", "x86-64-v3", 2, True),
        ("pairs", "x86-64-v3", 1, True),
        ("offset", "x86-64-v4", 1, False),
        ("offset", "x86-64-v3", 3, False),
        ("shifted codes", "x86-64-v3", 1, False),
    ],
)
def test_numbers_stay_in_their_place(form: str, target: str, rows: int, placed: bool) -> None:
    """A mask takes them from words, and activations are divided by what they are too large, unless lanes look
    numbers up, a table has them, or rows are more."""
    summed = _summed(text(form, rows, 64).replace("div=32", "div=256"), target)
    first, each = (48, 0.25) if form == "pairs" else (240, 0.0625)
    masks = [re.search(rf"(word|stored)\w* & (uint32\()?{mask}\b", summed) for mask in (first, first << 4)]
    assert [*map(bool, masks), f"* {each}" in summed] == [placed] * 3
    assert (f"^ {0x88888888 - (1 << 32)}" in summed) == (form.startswith("signed ") and placed)


@pytest.mark.parametrize("size", [2.0**-126, 2.0**-100, 2.0**-90])
def test_tiny_activations_keep_their_bits(size: float) -> None:
    """Those that would lose some, divided by what numbers in their place are too large."""
    (m, n, k), rng = (1, 19, 256), np.random.default_rng(3)
    a = (rng.uniform(1, 2, (m, k)) * size).astype(np.float32)
    w, y = rng.integers(0, 256, (n, k // 2)).astype(np.uint8), np.zeros((16, 64), np.float32)
    scales, zeros = np.full((n, k // 32), 0.5, np.float16), np.zeros((n, k // 32), np.uint8)
    c = np.zeros((m, n), np.float32)
    library = Library({"k": text("offset", wide="float32").replace("div=32", "div=256")}, "x86-64-v3")
    library.run("k", [a, w, scales, zeros, CODES, y, c], {"M": m, "N": n, "K": k})
    numbers = np.stack([w & 15, w >> 4], axis=-1).reshape(n, k).astype(np.float64) - 8
    most = np.abs(a.astype(np.float64)) @ np.abs(numbers).T * 0.5
    assert np.all(np.abs(c - a.astype(np.float64) @ numbers.T * 0.5) < most * 1e-6)


@pytest.mark.parametrize(
    ("form", "target", "rows", "group", "apart"),
    [
        ("zeros", "x86-64-v3", 1, 32, True),
        ("minima", "x86-64-v4", 1, 32, True),
        ("zeros in float32", "aarch64", 1, 128, True),
        ("shifted codes", "x86-64-v3", 1, 64, False),
        ("offset", "x86-64-v3", 1, 32, True),
        ("offset", "x86-64-v4", 1, 32, False),
        ("zeros", "x86-64-v3", 2, 32, True),
        ("zeros", "x86-64-v3", 3, 32, False),
        ("zeros", "x86-64-v4", 1, 128, False),
        ("zeros", "x86-64-v4+vnni+avx512bf16", 4, 128, True),
    ],
)
def test_offsets_apart_from_numbers(form: str, target: str, rows: int, group: int, apart: bool) -> None:
    """Where a group has some, and they cost an operation for each number: rows whose numbers stay in their
    place, one that looks nothing up for its group, and pairs."""
    kernel = text(form, rows, group).replace("div=32", "div=256")
    stmts = walk(lower(parse_kernel(kernel), parse_target(target), until="sum_groups").body)
    assert sum(isinstance(stmt, If) for stmt in stmts) == apart


@pytest.mark.parametrize("form", ["zeros", "minima", "offset"])
def test_infinite_activations_stay_infinite(form: str) -> None:
    """A row of one infinite activation, and one of NaN."""
    a = np.ones((2, 64), np.float16)
    a[0, 5], a[1, 7] = np.inf, np.nan
    w, y = np.full((3, 32), 0xFC, np.uint8), np.zeros((16, 64), np.float16)
    scales, zeros = np.array([[1.0, 1.0], [-2.0, -2.0], [0.5, 0.5]], np.float16), np.full((3, 2), 3, np.uint8)
    c = np.zeros((2, 3), np.float32)
    args = [a, w, scales, zeros, CODES, y, c]
    Library({"k": text(form).replace("div=32", "div=64")}, "x86-64-v3").run(
        "k", args, {"M": 2, "N": 3, "K": 64}
    )
    np.testing.assert_array_equal(c, np.float32([[np.inf, -np.inf, np.inf], [np.nan] * 3]))
