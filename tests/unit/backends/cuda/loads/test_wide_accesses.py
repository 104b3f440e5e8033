"""Which tensors code moves in vectors: those that begin where vectors do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilec.backends.cuda.codegen.wide_accesses import wide_tensors
from tilec.backends.cuda.launch import launches_of
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.ir.guards import Guard
from tilec.language.frontend.elaborate import elaborate, load_entry
from tilec.targets import parse_target

KERNELS = Path(__file__).parents[5] / "examples" / "kernels"
SM90A = parse_target("sm_90a")


@pytest.mark.parametrize(("div", "wide"), [(1, ()), (8, (0, 1, 2))])
def test_elements_may_begin_anywhere_and_vectors_may_not(div, wide):
    kernel = elaborate(
        load_entry("elementwise.py:silu_mul", KERNELS),
        name="silu_mul",
        dims={"M": Guard(), **dict.fromkeys(("N", "ldg", "ldu"), Guard(div=div))},
        args={"dtype": "bfloat16"},
        config={"rows": 1, "bN": 1024, "ahead": div == 1},
    )
    (launch,) = launches_of(to_tir(lower(kernel, SM90A), SM90A))
    assert wide_tensors(launch) == wide


def test_tensors_of_maps_begin_where_vectors_do():
    kernel = elaborate(
        load_entry("gemm.py:matmul", KERNELS),
        name="matmul",
        dims=dict.fromkeys("MNK", Guard(div=128)),
        args={"dtype": "float16"},
        config={"bM": 128, "bN": 128, "bK": 64, "num_stages": 4, "threads": 256},
    )
    (launch,) = launches_of(to_tir(lower(kernel, SM90A), SM90A))
    assert wide_tensors(launch) == (0, 1, 2)
