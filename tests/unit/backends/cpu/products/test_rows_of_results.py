"""Products whose left operand is made on chip have as many rows as tensors take of their sums."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import Library

from tilec.backends.cpu.nodes import MicroGemm
from tilec.backends.pipeline import lower
from tilec.ir.nodes import Parallel, Store, walk
from tilec.ir.text.parser import parse_kernel
from tilec.targets import parse_target

#: A tile of 64 rows, of which the tensors have five.
TEXT = """
kernel("few")
X = tensor(float16, (5, 256), ("5", "256"), access="in")
R = tensor(float16, (5, 256), ("5", "256"), access="in")
W = tensor(float16, (128, 256), ("128", "256"), access="in")
Y = tensor(float32, (5, 128), ("5", "128"), access="out")
with launch(1, 1, threads=(128, 1, 1)) as (bx, by):
    x = alloc(float16, (64, 64), "shared.dyn")
    w = alloc(float16, (128, 64), "shared.dyn")
    o = alloc(float32, (64, 128), "local.fragment")
    r = alloc(float32, (64, 128), "shared.dyn")
    fill(o[0:+64, 0:+128], 0.0)
    for k in serial(0, 4, 1):
        for i, j in parallel(64, 64):
            x[i, j] = X[by * 64 + i, k * 64 + j] + R[by * 64 + i, k * 64 + j]
        copy(W[0:+128, k * 64:+64], w[0:+128, 0:+64])
        gemm(x[0:+64, 0:+64], w[0:+128, 0:+64], o[0:+64, 0:+128], trans_b=True, clear=False)
    {last}
"""
LAST = {
    "copy": "copy(o[0:+64, 0:+128], Y[by * 64:+64, 0:+128])",
    "loop": """for i, j in parallel(64, 128):
        if by * 64 + i < 5:
            Y[by * 64 + i, j] = o[i, j]
""",
    "tile": """copy(o[0:+64, 0:+128], r[0:+64, 0:+128])
    copy(r[0:+64, 0:+128], Y[by * 64:+64, 0:+128])
""",
    "turned": """for i, j in parallel(64, 128):
        if by * 64 + j < 5:
            Y[by * 64 + j, i] = o[i, j]
""",
}
LEVEL = "x86-64-v4"


@pytest.mark.parametrize("last", ["copy", "loop", "tile"])
def test_rows_that_count(last: str) -> None:
    launch = lower(parse_kernel(TEXT.format(last=LAST[last])), parse_target(LEVEL)).launches[0]
    (gemm,) = (stmt for stmt in walk(launch.body) if isinstance(stmt, MicroGemm))
    assert (gemm.block.form, gemm.b.region.buffer.name) == ("across", "W")
    stores = ((loop, stmt) for loop in walk(launch.body) for stmt in getattr(loop, "body", ()))
    made = [loop for loop, stmt in stores if isinstance(stmt, Store) and stmt.buffer.name == "x"]
    (rows,) = (str(loop.extents[0]) for loop in made if isinstance(loop, Parallel))
    assert "5 - by * 64" in rows


@pytest.mark.parametrize("last", ["copy", "loop", "tile"])
def test_sums_of_few_rows(last: str) -> None:
    draw = np.random.default_rng(1)
    X, R = (draw.standard_normal((5, 256)).astype(np.float16) for _ in "XR")
    W, Y = draw.standard_normal((128, 256)).astype(np.float16), np.zeros((5, 128), np.float32)
    Library({"few": parse_kernel(TEXT.format(last=LAST[last]))}, "x86-64-v3").run("few", (X, R, W, Y), {})
    wanted = (X.astype(np.float32) + R).astype(np.float16).astype(np.float32) @ W.T.astype(np.float32)
    np.testing.assert_allclose(Y, wanted, rtol=1e-2, atol=2e-2)
