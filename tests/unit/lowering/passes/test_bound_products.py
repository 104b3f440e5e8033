"""Products at run-time offsets: outside of a tile elements read as 0 and writes are dropped."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import Library

from tilec.emulate import EmulatedKernel
from tilec.ir.interp import interpreter
from tilec.ir.nodes import Copy, Gemm, walk
from tilec.ir.text.parser import parse_kernel
from tilec.lowering.passes.bound_products import BoundProducts
from tilec.targets import parse_target

#: One product at offsets p and q that are arguments.
TEXT = """
kernel("{name}")
A = tensor(float32, (32, 32), ("32", "32"), access="in")
B = tensor(float32, (32, 64), ("32", "64"), access="in")
Y = tensor(float32, (32, 64), ("32", "64"), access="out")
p = scalar(int32)
q = scalar(int32)
with launch(1, threads=(128, 1, 1)) as (bx,):
    a = alloc(float32, (32, 32), "shared.dyn")
    b = alloc(float32, (32, 64), "shared.dyn")
    c = alloc(float32, (32, 64), "local.fragment")
    copy(A[0:+32, 0:+32], a[0:+32, 0:+32])
    copy(B[0:+32, 0:+64], b[0:+32, 0:+64])
    fill(c[0:+32, 0:+64], 1.0)
    {product}
    copy(c[0:+32, 0:+64], Y[0:+32, 0:+64])
"""
PRODUCTS = {
    "result": "gemm(a[0:+32, 0:+32], b[0:+32, 0:+16], c[0:+32, p * 16:+16], clear=False)",
    "cleared": "gemm(a[0:+16, 0:+32], b[0:+32, 0:+16], c[q * 16:+16, p * 16:+16], clear=True)",
    "operands": "gemm(a[q:+16, 0:+32], b[0:+32, p:+64], c[0:+16, 0:+64], clear=False)",
    "depth": "gemm(a[0:+32, q:+8], b[p:+8, 0:+64], c[0:+32, 0:+64], clear=False)",
    "transposed": "gemm(a[q:+32, p:+16], b[0:+32, 0:+64], c[0:+16, 0:+64], trans_a=True, clear=False)",
}
KERNELS = {name: TEXT.format(name=name, product=product) for name, product in PRODUCTS.items()}
OFFSETS = [(0, 0), (1, 1), (3, 0), (4, 1), (-1, 0), (2, -1), (50, 20), (100000, 7), (-100000, -9)]
#: Offsets with which 32 bits do not hold the place of an element: 16 times 2^28 would be the first again.
FAR = [(1 << 27, 1 << 27), (1 << 28, 1 << 28), (1 << 30, 3), ((1 << 28) + 1, (1 << 28) + 1)]
FAR += [
    ((1 << 31) - 1, (1 << 31) - 1),
    (-(1 << 31), -(1 << 31)),
    ((1 << 31) - 16, (1 << 31) - 32),
    (0, -(1 << 31)),
]


@pytest.fixture(scope="module")
def library():
    return Library(KERNELS, "x86-64-v3")


def compared(kernel, offsets, run) -> None:
    """``run`` gives what the interpreter gives."""
    rng = np.random.default_rng(len(kernel.name))
    for p, q in offsets:
        given = [rng.integers(-4, 5, shape).astype("float32") for shape in ((32, 32), (32, 64), (32, 64))]
        wanted = [array.copy() for array in given]
        interpreter.run(kernel, [*wanted, p, q], {})
        run([*given, p, q])
        np.testing.assert_array_equal(given[2], wanted[2], err_msg=f"p = {p}, q = {q}")


@pytest.mark.parametrize("name", KERNELS)
def test_offsets_outside_of_a_tile(library, name) -> None:
    compared(library.kernels[name], OFFSETS + FAR, lambda given: library.run(name, given, {}))


@pytest.mark.parametrize("name", KERNELS)
def test_offsets_outside_of_a_tile_on_a_gpu(name) -> None:
    kernel = parse_kernel(KERNELS[name])
    emulated = EmulatedKernel(kernel, parse_target("sm_80"))
    compared(kernel, OFFSETS[2:7] + FAR[1:6:2], lambda given: emulated(given, {}))


def test_offsets_that_a_loop_bounds_cost_no_copy() -> None:
    text = TEXT.format(name="loop", product=f"for k in serial(0, 4, 1):\n        {PRODUCTS['result']}")
    bounded = parse_kernel(text.replace("p * 16", "k * 16"))
    found = BoundProducts().apply(bounded, parse_target("x86-64-v3"))
    (product,) = (stmt for stmt in walk(found.body) if isinstance(stmt, Gemm))
    assert str(product.c.buffer.name) == "c"
    assert sum(isinstance(stmt, Copy) for stmt in walk(found.body)) == 3
