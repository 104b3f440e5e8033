"""What passes must leave alone: compiled code against the interpreter where a wrong rewrite would show."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import Library
from hazards import KERNELS
from kernel_arguments import arguments

from tilec.errors import UnsupportedError
from tilec.ir.interp import interpreter
from tilec.ir.nodes import TensorParam

DIMS = {
    "loop_from_run_time": [{"M": m} for m in (0, 1, 8, 31, 40, 300)],
    "shared_behind_a_limit": [{"N": n} for n in (1, 40, 64)],
    "name_outlives_value": [{"M": m} for m in (1, 20, 24)],
    "division": [{"n": n} for n in (32, 61, 64)],
}

IN_PLACE = """
kernel("in_place")
A = tensor(float32, (16, 64), ("16", "64"), access="in")
Y = tensor(float32, (16, 64), ("16", "64"), access="out")
with launch(1, threads=(128, 1, 1)) as (bx,):
    a = alloc(float32, (16, 64), "shared.dyn")
    b = alloc(float32, (64, 64), "shared.dyn")
    copy(A[0:+16, 0:+64], a[0:+16, 0:+64])
    fill(b[0:+64, 0:+64], 1.0)
    gemm(a[0:+16, 0:+64], b[0:+64, 0:+64], a[0:+16, 0:+64], clear=False)
    copy(a[0:+16, 0:+64], Y[0:+16, 0:+64])
"""


@pytest.fixture(scope="module")
def library():
    return Library(KERNELS, "x86-64-v3")


@pytest.mark.parametrize("name", KERNELS)
def test_hazard(library, name):
    kernel = library.kernels[name]
    for dims in DIMS.get(name, [{}]):
        got = arguments(kernel, dims, seed=len(name))
        want = [arg.copy() for arg in got]
        interpreter.run(kernel, want, dims)
        library.run(name, got, dims)
        for param, mine, reference in zip(kernel.params, got, want, strict=True):
            if isinstance(param, TensorParam) and param.access != "in":
                np.testing.assert_allclose(mine, reference, rtol=1e-4, atol=1e-3, err_msg=f"{dims}")


def test_product_in_place_is_refused():
    with pytest.raises(UnsupportedError, match="reads what it writes"):
        Library({"in_place": IN_PLACE}, "x86-64-v3")
