"""Tensors that statements write before they read them are outputs, whatever a caller has there."""

from __future__ import annotations

import pytest

from tilec.ir.text.parser import parse_kernel
from tilec.language.values.kernel.access import access

HEAD = """
kernel("small")
Z = tensor(int32, (8, 64), ("8", "64"), access="inout")
X = tensor(int32, (8, 64), ("8", "64"))
n = scalar(int32)
with launch(8, threads=(128, 1, 1)) as (bx,):
    one = alloc(int32, (1,), "local.var", init=0)
    tile = alloc(int32, (64,), "local.fragment")
"""


def found(body: str) -> str:
    """What the statements of a launch do with Z."""
    kernel = parse_kernel(HEAD + "".join(f"    {line}\n" for line in body.splitlines()))
    return access(kernel.body, kernel.params[0].buffer)


WRITE = """
for c in serial(0, (n + 15) // 16, 1):
    w = min(16, n - c * 16)
    for j in parallel(w):
        Z[bx, c * 16 + j] = X[bx, c * 16 + j]
"""
READ = """
for d in serial(0, (n + 15) // 16, 1):
    v = min(16, n - d * 16)
    for k in parallel(v):
        Z[bx, d * 16 + k] = Z[bx, d * 16 + k] * 2
"""
WHOLE_READ = "for k in parallel(64):\n    tile[k] = Z[bx, k]\n"


@pytest.mark.parametrize(
    "body",
    [
        WRITE,
        WRITE + READ,
        "Z[bx, n] = 3\none[0] = Z[bx, n]\n",
        "for j in parallel(64):\n    Z[bx, j] = 3\n    tile[j] = Z[bx, j]\n",
        "copy(X[bx : +1, 0 : +64], Z[bx : +1, 0 : +64])\n" + WHOLE_READ,
        "for j in parallel(64):\n    Z[bx, j] = 3\ncopy(Z[bx : +1, 0 : +64], tile[0 : +64])\n",
        "Z[bx, n] = 0\nif n > 3:\n    one[0] = Z[bx, n]\n",
        "fill(Z[bx : +1, 0 : +64], 0)\n" + WHOLE_READ,
    ],
)
def test_what_is_written_first_is_an_output(body):
    assert found(body) == "out"


@pytest.mark.parametrize(
    "body",
    [
        READ,
        READ + WRITE,
        WRITE + READ.replace("d * 16 + k] * 2", "d * 16 + k + 1]"),
        WRITE + READ.replace("0, (n + 15)", "0, (n + 16)"),
        WRITE + READ.replace("min(16", "min(17"),
        WRITE.replace("X[bx, c * 16 + j]", "Z[bx, c * 16 + j] + 1"),
        "if n > 3:\n    fill(Z[bx : +1, 0 : +64], 0)\n" + WHOLE_READ,
        "if n > 3:\n    fill(Z[bx : +1, 0 : +64], 0)\nelse:\n    one[0] = Z[bx, 0]\n",
        "for j in parallel(64):\n    if j == n:\n        continue\n    Z[bx, j] = 3\n" + WHOLE_READ,
        "while one[0] < n:\n    one[0] = one[0] + 1\n    fill(Z[bx : +1, 0 : +64], 0)\n" + WHOLE_READ,
        "Z[bx, one[0]] = 3\none[0] = one[0] + 1\ntile[0] = Z[bx, one[0]]\n",
        "fill(Z[bx : +1, 0 : +32], 0)\n" + WHOLE_READ,
        "Z[bx, 0] = 3\natomic_add(Z[bx, 0], 1)\n",
    ],
)
def test_what_a_caller_has_there_counts(body):
    assert found(body) == "inout"


def test_another_launch_tells_nothing():
    other = "with launch(8, threads=(128, 1, 1)) as (by,):\n    Z[by, 0] = Z[by, 0] + 1\n"
    kernel = parse_kernel(f"{HEAD}    fill(Z[bx : +1, 0 : +64], 0)\n{other}")
    assert access(kernel.body, kernel.params[0].buffer) == "inout"
