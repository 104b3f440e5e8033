"""Which axis of a loop has the lanes."""

from __future__ import annotations

import numpy as np
from compiled import Library

#: Rows of weights of four bits times a vector.
PACKED = """
kernel("packed")
B = tensor(uint8, (16, 64), ("16", "64"), access="in")
A = tensor(float32, (128,), ("128",), access="in")
Y = tensor(float32, (16,), ("16",), access="out")
with launch(1, threads=(64, 1, 1)) as (bx,):
    total = alloc(float32, (16,), "local.fragment")
    fill(total[0:+16], 0.0)
    for i, j in parallel(16, 128):
        total[i] = total[i] + cast(float32, cast(int32, B[i, j // 2]) >> (j % 2 * 4) & 15) * A[j]
    for i in parallel(16):
        Y[i] = total[i]
"""


def test_weights_that_share_a_byte_are_neighbours() -> None:
    """Lanes along rows would read each byte by itself."""
    library, rng = Library({"packed": PACKED}, "x86-64-v3"), np.random.default_rng(0)
    assert any("loop over j in vectors of 8" in note for note in library.notes("packed"))
    b, a = rng.integers(0, 256, (16, 64), np.uint8), rng.integers(-9, 9, 128).astype(np.float32)
    y = np.full(16, np.nan, np.float32)
    library.run("packed", [b, a, y], {})
    weights = np.stack([b & 15, b >> 4], -1).reshape(16, 128)
    np.testing.assert_array_equal(y, weights @ a)
