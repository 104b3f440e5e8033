"""Shuffles of warps: lanes that know how far away the other is are vectors whose elements change places."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import LEVELS, Library
from told import losses

from tilec.ir.interp import interpreter
from tilec.targets import parse_target, runs_here

TEXT = """
kernel("{name}")
x = tensor(float32, (128,), ("128",), access="in")
y = tensor(float32, (128,), ("128",), access="out")
z = tensor(float32, (4,), ("4",), access="out")
with launch(1, threads=(128, 1, 1)) as ((bx,), (tx, ty, tz)):
    s = alloc(float32, (1,), "local.var")
    s[0] = x[tx]
    for k in {loop}:
        other = lane_{asked}
        s[0] = s[0] + other
    y[tx] = s[0]
    if tx % 32 == {first}:
        z[tx // 32] = s[0]
"""
#: Name to the loop, what lanes ask for, and the lane that stores the sum of its warp.
SHUFFLES = {
    "halves": ("unroll(0, 5, 1)", "shfl_xor(s[0], 16 >> k)", 0),
    "bits": ("serial(0, 5, 1)", "shfl_xor(s[0], 1 << k)", 31),
    "several_bits": ("serial(0, 3, 1)", "shfl_xor(s[0], 5 + k)", 3),
    "pairs": ("unroll(0, 2, 1)", "shfl_xor(s[0], k + 1, width=8)", 8),
    "down": ("serial(4, -1, -1)", "shfl_down(s[0], 1 << k)", 0),
    "up": ("serial(0, 5, 1)", "shfl_up(s[0], 1 << k)", 31),
    "one": ("serial(0, 2, 1)", "shfl(s[0], 30 + k)", 1),
    "beyond": ("serial(0, 2, 1)", "shfl_xor(s[0], 4 << k, width=8)", 4),
}


@pytest.fixture(scope="module", params=LEVELS)
def library(request):
    if not runs_here(parse_target(request.param)):
        pytest.skip(f"this machine does not run {request.param}")
    texts = {
        name: TEXT.format(name=name, loop=loop, asked=asked, first=first)
        for name, (loop, asked, first) in SHUFFLES.items()
    }
    return Library(texts, request.param)


@pytest.mark.parametrize("name", SHUFFLES)
def test_lanes_get_what_they_ask_for(library, name):
    x = np.random.default_rng(len(name)).integers(-9, 9, 128).astype("float32")
    found, wanted = ([x, np.zeros(128, "float32"), np.zeros(4, "float32")] for _ in range(2))
    interpreter.run(library.kernels[name], wanted, {})
    library.run(name, found, {})
    for mine, theirs in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("name", ["halves", "bits", "pairs", "one"])
def test_lanes_are_vectors(library, name):
    assert not losses(library.images[name].launches[0])
