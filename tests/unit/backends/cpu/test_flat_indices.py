"""Numbers of elements that a loop takes apart by dims of run time: lanes lie side by side where these are
multiples of them, and go one by one elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import LEVELS, Library
from told import roads

from tilec.targets import parse_target, runs_here

TEXT = """
kernel("scaled")
M = dim(int32)
N = dim(int32)
X = tensor(float32, (3, M, N), ("3", "M", "N"), access="in")
G = tensor(float32, (M, N), ("M", "N"), access="in")
Y = tensor(float32, (3, M, N), ("3", "M", "N"), access="out")
with launch((3 * M * N + 127) // 128, threads=(64, 1, 1)) as (bx,):
    for i in parallel(128):
        p = bx * 128 + i
        if p < 3 * M * N:
            c = p // N % M
            Y[p // (M * N), c, p % N] = X[p // (M * N), c, p % N] * G[c, p % N]
"""


@pytest.mark.parametrize("level", LEVELS)
def test_flat_indices_find_their_elements(level: str) -> None:
    if not runs_here(parse_target(level)):
        pytest.skip(f"this machine does not run {level}")
    library, rng = Library({"scaled": TEXT}, level), np.random.default_rng(0)
    kinds = {road.kind for road in roads(library.images["scaled"].launches[0])}
    assert kinds == {"vectors", "scalar"}, "one version each"
    for m, n in ((1, 1), (2, 16), (3, 50), (5, 48), (16, 4), (7, 128)):
        x, g = rng.random((3, m, n), np.float32), rng.random((m, n), np.float32)
        y = np.full_like(x, np.nan)
        library.run("scaled", [x, g, y], {"M": m, "N": n})
        np.testing.assert_array_equal(y, x * g)
