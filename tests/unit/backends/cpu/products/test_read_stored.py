"""Products of few rows read bytes that a kernel converts tile by tile where they lie."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from compiled import Library

from tilec.backends.cpu.nodes import MicroGemm
from tilec.backends.pipeline import lower
from tilec.ir.nodes import walk
from tilec.ir.text.parser import parse_kernel
from tilec.targets import parse_target

#: Scores of keys of bytes, then those times the keys; ``also`` is one more statement.
TEXT = """
kernel("k")
S = dim(int32)
Q = tensor({wide}, ({m}, 32), ("{m}", "32"), access="in")
K = tensor({stored}, (S, 32), ("S", "32"), access="{access}")
Y = tensor({wide}, (16, 32), ("16", "32"), access="inout")
O = tensor(float32, ({m}, 32), ("{m}", "32"), access="out")
with launch(1, threads=(128, 1, 1)) as (bx,):
    q = alloc({wide}, ({m}, 32), "shared.dyn")
    b = alloc({stored}, (16, 32), "shared.dyn")
    f = alloc({wide}, (16, 32), "shared.dyn")
    v = alloc({wide}, (16, 32), "shared.dyn")
    s = alloc(float32, ({m}, 16), "local.fragment")
    o = alloc(float32, ({m}, 32), "local.fragment")
    copy(Q[0:+{m}, 0:+32], q[0:+{m}, 0:+32])
    fill(o[0:+{m}, 0:+32], 0.0)
    for k in pipelined(0, (S + 15) // 16, num_stages=2):
        copy(K[k * 16:+16, 0:+32], b[0:+16, 0:+32])
        for i, j in parallel(16, 32):
            f[i, j] = cast({wide}, {value})
        fill(s[0:+{m}, 0:+16], 0.0)
        gemm(q[0:+{m}, 0:+32], f[0:+16, 0:+32], s[0:+{m}, 0:+16], trans_a=False, trans_b=True, clear=False)
        for i, j in parallel(16, 32):
            v[i, j] = cast({wide}, K[k * 16 + i, j])
        {also}
        gemm(s[0:+{m}, 0:+16], v[0:+16, 0:+32], o[0:+{m}, 0:+32], trans_a=False, trans_b=False, clear=False)
    copy(o[0:+{m}, 0:+32], O[0:+{m}, 0:+32])
"""
TARGET = "x86-64-v3"
WORDS = "x86-64-v4+avx512bf16"


def text(rows: int = 4, stored: str = "int8", wide: str = "float32", **other: str) -> str:
    parts = {"value": "cast(float32, b[i, j])", "also": "", "access": "in"} | other
    return TEXT.format(m=rows, stored=stored, wide=wide, **parts)


def products(target: str = TARGET, **parts: object) -> list[MicroGemm]:
    """Both products."""
    kernel = lower(parse_kernel(text(**parts)), parse_target(target), until="forward_operands")
    return [stmt for stmt in walk(kernel.body) if isinstance(stmt, MicroGemm)]


def read(**parts: object) -> list[tuple[str, str]]:
    """Name and type of the second operand of both products."""
    gemms = products(**parts)
    return [(str(gemm.b.region.buffer.name), str(gemm.b.region.buffer.dtype)) for gemm in gemms]


@pytest.mark.parametrize("wide", ["float32", "bfloat16"])
@pytest.mark.parametrize("stored", ["int8", "uint8", "float8_e4m3fn", "float8_e5m2"])
def test_few_rows_read_bytes(stored: str, wide: str) -> None:
    """Of the tensor, which may have fewer columns than sums that are cleared before; of a tile where a step
    of K is too short for so many rows."""
    assert read(rows=5, stored=stored, wide=wide) == [("f_stored", stored), ("K", stored)]
    assert read(stored=stored, wide=wide) == [("K", stored), ("K", stored)]


@pytest.mark.parametrize(("more", "found"), [("", "f_stored"), ("Y[i, j] = f[i, j]\n            ", "f")])
def test_values_may_have_names(more: str, found: str) -> None:
    """Which a loop gives in front of its store, if it does nothing else."""
    named = "number = cast(float32, b[i, j])\n            f[i, j] = cast(float32, number)"
    kernel = text(5).replace(
        "f[i, j] = cast(float32, cast(float32, b[i, j]))", f"{named}\n            {more}"
    )
    lowered = lower(parse_kernel(kernel), parse_target(TARGET), until="forward_operands")
    scores, _ = (stmt for stmt in walk(lowered.body) if isinstance(stmt, MicroGemm))
    assert str(scores.b.region.buffer.name) == found


@pytest.mark.parametrize(
    ("parts", "found"),
    [
        ({"rows": 7}, ["f", "v"]),
        ({"value": "cast(float32, b[i, j]) + 0.5"}, ["f", "K"]),
        ({"value": "cast(float32, b[i, 31 - j])"}, ["f", "K"]),
        ({"also": "copy(v[0:+16, 0:+32], Y[0:+16, 0:+32])"}, ["K", "v"]),
        ({"value": "cast(float32, cast(int32, b[i, j]) * 2)"}, ["f", "K"]),
        ({"value": "cast(float32, b[i, j]) - 8.0"}, ["f", "K"]),
    ],
)
def test_other_tiles_stay(parts: dict[str, object], found: list[str]) -> None:
    """More rows than a register block has, what no byte has room for, and what others read."""
    assert [name for name, _ in read(**parts)] == found


def counted(bits: int) -> str:
    """A value that counts set bits, choice by choice."""
    choices = (f"if_then_else((cast(int32, b[i, j]) >> {bit} & 1) < 1, 0, 1)" for bit in range(bits))
    return f"cast(float32, {' + '.join(choices)})"


def test_choices_that_fall_in_many_ways_are_not_all_gone_through() -> None:
    """Each doubles the ways of a sum: those of a byte's bits are looked at, of 30 there are a thousand
    million."""
    assert [name for name, _ in read(value=counted(8))] == ["f_stored", "K"]
    assert [name for name, _ in read(value=counted(30))] == ["f", "K"]


@pytest.mark.parametrize(
    "parts", [{"also": "K[0, 0] = int8(1)", "access": "inout"}, {"also": "b[0, 0] = int8(1)"}]
)
def test_bytes_that_others_write_are_copied(parts: dict[str, str]) -> None:
    scores, values = (name for name, _ in read(**parts))
    assert (scores, values) == ("f_stored", "v_stored" if "access" in parts else "K")


#: A number of each byte of ``K``, twice: as an integer, and as a float with what is taken off beside it.
NUMBERS = {
    "halves": "(cast(int32, b[i, j // 2 * 2]) >> j % 2 * 4 & 15) - 8",
    "far halves": "cast(int32, b[i, j % 16 + 16]) >> j // 16 * 4 & 15",
    "quarters": "3 - (cast(int32, b[i, j // 4]) >> j % 4 * 2 & 3)",
    "choices": "if_then_else(j % 2 < 1, cast(int32, b[i, j // 2]) & 15, cast(int32, b[i, j // 2]) >> 4 & 15)",
    "masked": "cast(int32, b[i, j]) & 63",
}


@pytest.mark.parametrize("wide", ["float32", "bfloat16"])
@pytest.mark.parametrize("form", [*NUMBERS, "float"])
def test_numbers_that_bytes_hold_are_a_tile_of_bytes(form: str, wide: str) -> None:
    value = NUMBERS.get(form) or "cast(float32, cast(int32, b[i, j // 2]) >> j % 2 * 4 & 15) - 8.0"
    whole = value if form == "float" else f"cast(float32, {value})"
    assert read(value=whole, wide=wide) == [("f_stored", "int8"), ("K", "int8")]
    assert read(value=f"{whole} + 0.25", wide=wide)[0] == ("f", wide)


def number_of(form: str, b: np.ndarray) -> np.ndarray:
    """What NUMBERS has of rows of 32 bytes."""
    wide, j = b.astype(np.int32), np.arange(32)
    return {
        "halves": (wide[:, j // 2 * 2] >> j % 2 * 4 & 15) - 8,
        "far halves": wide[:, j % 16 + 16] >> j // 16 * 4 & 15,
        "quarters": 3 - (wide[:, j // 4] >> j % 4 * 2 & 3),
        "choices": wide[:, j // 2] >> j % 2 * 4 & 15,
        "masked": wide & 63,
    }[form]


@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("form", NUMBERS)
def test_numbers_are_right(form: str, target: str) -> None:
    """Where bytes have their highest bit set, too; with rows that the tensor lacks, whose bytes are 0."""
    rng = np.random.default_rng(1)
    q = rng.integers(-4, 5, (3, 32)).astype(np.float32)
    k = rng.integers(-128, 128, (37, 32)).astype(np.int8)
    o, y = np.full((3, 32), np.nan, np.float32), np.zeros((16, 32), np.float32)
    made = text(3, value=f"cast(float32, {NUMBERS[form]})")
    Library({"k": made}, target).run("k", [q, k, y, o], {"S": 37})
    np.testing.assert_array_equal(o, q @ number_of(form, k).astype(np.float32).T @ k.astype(np.float32))


@pytest.mark.parametrize(
    ("value", "rows", "name", "form"),
    [
        ("b[i, j]", 8, "f_stored", "fma"),
        ("b[i, j]", 9, "f", "vdpbf16ps"),
        (NUMBERS["halves"], 6, "f_stored", "fma"),
        (NUMBERS["halves"], 7, "f", "vdpbf16ps"),
    ],
)
def test_few_rows_take_bytes_rather_than_words_of_bfloat16(
    value: str, rows: int, name: str, form: str
) -> None:
    """Up to a block of them; numbers that are computed for three quarters of one."""
    scores, _ = products(WORDS, rows=rows, wide="bfloat16", value=f"cast(float32, {value})")
    assert (str(scores.b.region.buffer.name), scores.block.form) == (name, form)


def test_denormal_bfloat16_beside_bytes_counts() -> None:
    """What words would take as zero."""
    q = np.full((4, 32), 2.0**-130, ml_dtypes.bfloat16)
    k = np.full((37, 32), 64, np.int8)
    o, y = np.full((4, 32), np.nan, np.float32), np.zeros((16, 32), ml_dtypes.bfloat16)
    Library({"k": text(4, wide="bfloat16")}, WORDS).run("k", [q, k, y, o], {"S": 37})
    np.testing.assert_array_equal(o, np.full((4, 32), 2.0**-130 * 64 * 32 * 64 * 37, np.float32))


@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("stored", ["int8", "uint8", "float8_e5m2"])
def test_results_are_those_of_the_converted_tile(stored: str, rows: int) -> None:
    """With a last tile that the tensor has not all of."""
    rng, kind = np.random.default_rng(0), getattr(ml_dtypes, stored, None) or np.dtype(stored)
    q = rng.integers(-4, 5, (rows, 32)).astype(np.float32)
    k = rng.integers(0 if stored == "uint8" else -8, 9, (37, 32)).astype(kind)
    o, y = np.full((rows, 32), np.nan, np.float32), np.zeros((16, 32), np.float32)
    Library({"k": text(rows, stored)}, TARGET).run("k", [q, k, y, o], {"S": 37})
    wide = k.astype(np.float32)
    np.testing.assert_array_equal(o, q @ wide.T @ wide)
