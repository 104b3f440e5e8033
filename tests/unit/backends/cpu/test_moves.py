"""Elements that are moved and not computed with keep their bits, also those of numbers that are none."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import Library, numpy_type

TEXT = """
kernel("moved")
X = tensor({dtype}, (256, 256), ("256", "256"), access="in")
Y = tensor({dtype}, (256, 256), ("256", "256"), access="out")
with launch(256, threads=(64, 1, 1)) as (bx,):
    tile = alloc({dtype}, (256,), "shared.dyn")
    copy(X[bx:+1, 0:+256], tile[0:+256])
    for i in parallel(256):
        Y[bx, i] = tile[255 - i]
"""


@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_pattern_of_bits_arrives(level: str, dtype: str) -> None:
    x = np.arange(1 << 16, dtype=np.uint16).reshape(256, 256)
    y = np.zeros_like(x)
    library = Library({"moved": TEXT.format(dtype=dtype)}, level)
    library.run("moved", [x.view(numpy_type(dtype)), y.view(numpy_type(dtype))], {})
    np.testing.assert_array_equal(y, x[:, ::-1])
