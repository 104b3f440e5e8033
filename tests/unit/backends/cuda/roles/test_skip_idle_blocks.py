"""Loops of blocks that store nothing have no trip; where all blocks may store something, they stay."""

from __future__ import annotations

import pytest

from tilec.backends.cuda.idioms.grids.skip_idle_blocks import SkipIdleBlocks
from tilec.ir.text.parser import parse_kernel
from tilec.ir.text.printer import format_kernel
from tilec.targets import parse_target

SM90A = parse_target("sm_90a")
TEXT = """
kernel("small")
n = scalar(int32)
lengths = tensor(int32, (8,), ("8",), access="in")
K = tensor(float16, (1024, 64), ("1024", "64"), access="in")
O = tensor(float32, (1024, 64), ("1024", "64"), access="out")
with launch(8, 8, threads=(128, 1, 1)) as (bx, by):
    Q = alloc(float16, (64, 64), "shared.dyn")
    Ks = alloc(float16, (64, 64), "shared.dyn")
    acc = alloc(float32, (64, 64), "local.fragment")
    length = lengths[by]
    for k in pipelined(0, {trips}, num_stages=2):
        copy(K[k * 64:+64, 0:+64], Ks[0:+64, 0:+64])
        gemm(Q[0:+64, 0:+64], Ks[0:+64, 0:+64], acc[0:+64, 0:+64], clear=False)
    {more}
    for i, j in parallel(64, 64):
        if {cond}:
            O[by * 64 + i, j] = acc[i, j]
"""
TRIPS = "(length + 63) // 64"


def bound(cond: str, trips: str = TRIPS, more: str = "last = length") -> str:
    """Where the loop ends."""
    kernel = parse_kernel(TEXT.format(cond=cond, trips=trips, more=more))
    text = format_kernel(SkipIdleBlocks().apply(kernel, SM90A))
    return text.partition("pipelined(0, ")[2].partition(", num_stages")[0]


@pytest.mark.parametrize(
    ("cond", "active"),
    [
        ("bx * 64 + i < length", "bx * 64 + 0 < length"),
        ("bx * 64 + i < length and j < n", "bx * 64 + 0 < length and 0 < n"),
        ("bx * 64 - i <= length", "bx * 64 - 63 <= length"),
        ("length > bx * 64 + i", "length > bx * 64 + 0"),
        ("bx * 64 + i < length and i % 3 != 1", "bx * 64 + 0 < length"),
    ],
)
def test_a_block_behind_the_end_of_its_sequence_has_no_trip(cond, active):
    assert bound(cond) == f"if_then_else({active}, {TRIPS}, 0)"


@pytest.mark.parametrize(
    "change",
    [
        {"cond": "bx * 64 + i < n"},
        {"cond": "i % 3 < length - bx * 64"},
        {"cond": "bx * 64 + i < length", "trips": "8"},
        {"cond": "bx * 64 + i < length", "more": "copy(acc[0:+64, 0:+64], O[0:+64, 0:+64])"},
        {"cond": "acc[i, j] < cast(float32, length)"},
    ],
    ids=["of a scalar", "not linear", "as many trips", "another store", "of what is computed"],
)
def test_other_loops_stay(change):
    assert bound(**change) == change.get("trips", TRIPS)
