"""Places under a name that lie where an element says."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import LEVELS, Library
from told import losses

from tilec.backends.cpu.codegen.objects import tir_text
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.ir.text.parser import parse_kernel
from tilec.targets import parse_target, runs_here

#: Sums of rows that begin anywhere; the place of an element has a name in the loop over them.
SUMS = """
kernel("sums")
n = dim(int32)
m = dim(int32)
first = tensor(int32, (n + 1,), ("n + 1",), access="in")
X = tensor(float32, (m,), ("m",), access="in")
Y = tensor(float32, (n, 64), ("n", "64"), access="out")
with launch(n, threads=(64, 1, 1)) as (r,):
    total = alloc(float32, (64,), "local.fragment")
    fill(total[0:+64], 0.0)
    for k in serial(0, (first[r + 1] - first[r] + 63) // 64, 1):
        for i in parallel(64):
            at = first[r] + k * 64 + i
            if at < first[r + 1]:
                total[i] = total[i] + X[at]
    for i in parallel(64):
        Y[r, i] = total[i]
"""


@pytest.mark.parametrize("level", LEVELS)
def test_lanes_behind_a_place_that_is_read_lie_side_by_side(level: str) -> None:
    if not runs_here(parse_target(level)):
        pytest.skip(f"this machine does not run {level}")
    library, rng = Library({"sums": SUMS}, level), np.random.default_rng(0)
    assert not losses(library.images["sums"].launches[0])
    lengths = np.array([0, 1, 63, 64, 65, 200])
    first, x = np.append(0, np.cumsum(lengths)).astype(np.int32), rng.random(lengths.sum()).astype(np.float32)
    y = np.full((6, 64), np.nan, np.float32)
    library.run("sums", [first, x, y], {"n": 6, "m": len(x)})
    wanted = [x[start : start + length].sum() for start, length in zip(first, lengths, strict=False)]
    np.testing.assert_allclose(y.sum(1), wanted, rtol=1e-5)


@pytest.mark.parametrize("level", ["x86-64-v3", "x86-64-v4"])
def test_lanes_look_nothing_up_there(level: str) -> None:
    target = parse_target(level)
    text = tir_text(to_tir(lower(parse_kernel(SUMS), target), target), target, "k")
    assert "tilec_gather" not in text
