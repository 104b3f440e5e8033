"""Trips with narrow tiles become one where nothing but zeros is multiplied more."""

from __future__ import annotations

import pytest

from tilec.backends.cuda.idioms.trips.join_trips import JoinTrips
from tilec.ir.nodes import Pipelined, walk
from tilec.ir.text.parser import parse_kernel
from tilec.targets import parse_target

SM90A = parse_target("sm_90a")
TEXT = """
kernel("short_trips")
M = dim(int32)
K = dim(int32{divisor})
N = dim(int32, div=8)
A = tensor({dtype}, (M, K), ("M", "K"), access="in")
B = tensor({dtype}, (N, K), ("N", "K"), access="in")
C = tensor(float16, (M, N), ("M", "N"), access="out", output=True)
with launch((N + 127) // 128, (M + 127) // 128, threads=(256, 1, 1)) as (bx, by):
    As = alloc({dtype}, (128, {depth}), "shared.dyn")
    Bs = alloc({dtype}, (128, {depth}), "shared.dyn")
    acc = alloc(float32, (128, 128), "local.fragment")
    fill(acc[0:+128, 0:+128], 0.0)
    for ko in pipelined(0, {trips}, num_stages=3):
        copy(A[by * 128:+128, {start}:+{depth}], As[0:+128, 0:+{depth}])
        copy(B[bx * 128:+128, {start}:+{depth}], Bs[0:+128, 0:+{depth}])
        gemm(As[0:+128, 0:+{depth}], Bs[0:+128, 0:+{depth}], acc[0:+128, 0:+128], trans_b=True, clear={clear})
    copy(acc[0:+128, 0:+128], C[by * 128:+128, bx * 128:+128])
"""


def depths(**change: object) -> tuple[int, list[str]]:
    """The depth of the tiles of a product, and the notes of the rule."""
    form = {
        "dtype": "float16",
        "depth": 32,
        "divisor": "",
        "start": None,
        "trips": None,
        "clear": False,
        **change,
    }
    depth = form["depth"]
    form["trips"] = form["trips"] or f"(K + {int(str(depth)) - 1}) // {depth}"
    form["start"] = form["start"] or f"ko * {depth}"
    made = JoinTrips().apply(parse_kernel(TEXT.format(**form)), SM90A).launches[0]
    (loop,) = (stmt for stmt in walk(made.body) if isinstance(stmt, Pipelined))
    return int(loop.body[0].src.extent[-1]), list(made.notes)


@pytest.mark.parametrize(
    ("change", "depth"),
    [
        ({}, 64),
        ({"divisor": ", div=8"}, 64),
        ({"depth": 16}, 64),
        ({"dtype": "float8_e4m3fn", "depth": 64}, 128),
        ({"divisor": ", div=64", "trips": "K // 32"}, 64),
    ],
)
def test_rows_become_whole(change, depth):
    found, notes = depths(**change)
    assert found == depth
    assert "have 128 bytes" in notes[0]


@pytest.mark.parametrize(
    "change",
    [
        {"depth": 64},  # whole as it is
        {"depth": 48},  # no part of 128 bytes
        {"trips": "K // 32"},  # stops in front of the end
        {"start": "ko * 64"},  # leaves boxes out
        {"start": "(ko + 1) % 4 * 32"},
        {"clear": True},
    ],
)
def test_other_loops_stay(change):
    assert depths(**change) == (change.get("depth", 32), [])


IMAGE = """
kernel("columns_of_an_image")
X = tensor(float16, (2, 16, 16, {channels}), ("2", "16", "16", "{channels}"), access="in")
W = tensor(float16, (3, 3, {channels}, 64), ("3", "3", "{channels}", "64"), access="in")
Y = tensor(float16, (512, 64), ("512", "64"), access="out", output=True)
with launch(8, threads=(128, 1, 1)) as (by,):
    a = alloc(float16, (64, 32), "shared.dyn")
    w = alloc(float16, (32, 64), "shared.dyn")
    acc = alloc(float32, (64, 64), "local.fragment")
    fill(acc[0:+64, 0:+64], 0.0)
    for k in pipelined(0, 9 * {channels} // 32, num_stages=3):
        for i, j in parallel(64, 32):
            t = {place}
            m = by * 64 + i
            a[i, j] = X[m // 256, m % 256 // 16 + t // {channels} // 3 - 1, m % 16 + t // {channels} % 3 - 1, t % {channels}]
        copy(W[k * 32 // {channels} // 3:+1, k * 32 // {channels} % 3:+1, k * 32 % {channels}:+32, 0:+64], w[0:+32, 0:+64])
        gemm(a[0:+64, 0:+32], w[0:+32, 0:+64], acc[0:+64, 0:+64], clear=False)
    copy(acc[0:+64, 0:+64], Y[by * 64:+64, 0:+64])
"""  # noqa: E501


@pytest.mark.parametrize(
    ("channels", "place", "depth"),
    [
        (64, "k * 32 + j", 64),
        (32, "k * 32 + j", 32),  # an odd number of trips
        (96, "k * 32 + j", 32),  # boxes of the filter that are in two taps
        (64, "k * 32 + 31 - j", 32),
    ],
)
def test_trips_over_the_columns_of_an_image(channels, place, depth):
    made = JoinTrips().apply(parse_kernel(IMAGE.format(channels=channels, place=place)), SM90A).launches[0]
    (loop,) = (stmt for stmt in walk(made.body) if isinstance(stmt, Pipelined))
    assert loop.body[0].extents[-1] == loop.body[1].src.extent[-2] == depth
