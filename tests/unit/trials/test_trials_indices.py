"""What integers index, and the inputs that follow from it."""

from __future__ import annotations

import numpy as np

from tilec.package.model import ParamRecord
from tilec.trials.arrays import random_values
from tilec.trials.facts import KernelFacts
from tilec.trials.indices import Indices, indices_of

LOOKUP = """\
kernel("lookup")
n = dim(int32)
V = dim(int32)
ids = tensor(int32, (n,), ("n",), access="in")
table = tensor(float32, (V, 8), ("V", "8"), access="in")
y = tensor(float32, (n, 8), ("n", "8"), access="out")
with launch(n, threads=(32, 1, 1)) as (t,):
    row = ids[t]
    for j in parallel(8):
        y[t, j] = table[row, j]
"""
RAGGED = """\
kernel("ragged")
n = dim(int32)
B = dim(int32)
bounds = tensor(int32, (B + 1,), ("B + 1",), access="in")
limits = tensor(int32, (B,), ("B",), access="in")
x = tensor(float32, (n,), ("n",), access="in")
y = tensor(float32, (n,), ("n",), access="out")
with launch(B, threads=(32, 1, 1)) as (b,):
    first = bounds[b]
    for i in parallel(64):
        if first + i < min(bounds[b + 1], limits[b]):
            y[first + i] = x[first + i]
"""


def tensor(name: str, dtype: str, access: str, *extents: str) -> ParamRecord:
    return ParamRecord(name, "tensor", dtype, access, extents=extents)


def test_ids_index_the_rows_of_the_table() -> None:
    assert indices_of(LOOKUP) == {"ids": Indices(("V",), False)}


def test_an_element_used_with_its_neighbour_is_a_bound() -> None:
    assert indices_of(RAGGED) == {"bounds": Indices(("n",), True)}


def test_ids_reach_every_row_and_one_beyond() -> None:
    params = (tensor("ids", "int32", "in", "n"), tensor("table", "float32", "in", "V", "8"))
    kernel = KernelFacts("lookup", params, ("n", "V"), (), {})
    drawn = random_values(kernel, {"n": 500, "V": 3}, np.random.default_rng(0), indices_of(LOOKUP))
    assert set(drawn["ids"]) == {0, 1, 2, 3}


def test_bounds_ascend() -> None:
    params = (tensor("bounds", "int32", "in", "B + 1"), tensor("limits", "int32", "in", "B"))
    kernel = KernelFacts("ragged", params, ("n", "B"), (), {})
    drawn = random_values(kernel, {"n": 100, "B": 30}, np.random.default_rng(0), indices_of(RAGGED))
    assert list(drawn["bounds"]) == sorted(drawn["bounds"])
    assert len(set(drawn["bounds"])) > 10
