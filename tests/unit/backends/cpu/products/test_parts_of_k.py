"""Parts of K that tasks share: the sums of all kinds of products, and what has no parts."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from breadth import parametrized
from compiled import Library
from cpu_products import BIAS_RESIDUAL, ROW_SUM, Product
from tvm import sym

from tilec.backends.pipeline import lower
from tilec.errors import UnsupportedError
from tilec.ir.nodes import Kernel
from tilec.ir.text.parser import parse_kernel
from tilec.targets import parse_target

DOUBLED = """\
    for i, j in parallel({bM}, {bN}):
        C[by * {bM} + i, bx * {bN} + j] = acc[i, j] * 2.0"""
PRODUCTS = {
    "stored": Product(bM=16),
    "wide": Product(bM=8, bN=256, bK=8),
    "trans_both": Product(trans_a=True, trans_b=True),
    "doubled": Product(epilogue=DOUBLED),
    "float16": Product(dtype="float16", bM=16),
    "int8": Product(dtype="int8", acc="int32", out="int32", trans_b=True),
}
FAST = ("stored", "doubled", "int8")
UNFIT = {
    "rows_summed": (Product(N=64, epilogue=ROW_SUM), "statement behind its loop"),
    "two_loops": (Product(epilogue=BIAS_RESIDUAL), "statement behind its loop"),
    "panels": (Product(panel=32), "product in its loop"),
    "clears": (Product(clears=True), "more than add products"),
}


def parted(product: Product) -> str:
    """The kernel, which asks for parts of two trips at least."""
    return product.text("product").replace("1, 1)) as", '1, 1), hints={"spread_k": 2}) as')


def stages(text: str) -> Kernel:
    """The kernel behind the pass."""
    return lower(parse_kernel(text), parse_target("x86-64-v3"), until="spread_depth")


@cache
def library(name: str) -> Library:
    """A product, for one target."""
    return Library({name: parted(PRODUCTS[name])}, "x86-64-v3")


@pytest.mark.parametrize("dims", [(5, 70, 500), (33, 129, 257), (16, 64, 16), (1, 1, 1)], ids=str)
@parametrized("name", PRODUCTS, fast=FAST)
def test_sums(name: str, dims: tuple[int, int, int]) -> None:
    product = PRODUCTS[name]
    args = product.arguments(*dims, np.random.default_rng(0))
    library(name).run(name, args, dict(zip("MNK", dims, strict=True)))
    times = 2 if product.epilogue is DOUBLED else 1
    np.testing.assert_allclose(args[-1], times * product.expected(args), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", UNFIT)
def test_what_has_no_parts_is_refused(name: str) -> None:
    product, why = UNFIT[name]
    with pytest.raises(UnsupportedError, match=f"spread_k: .*{why}"):
        stages(parted(product))


def test_a_launch_without_a_product_stays() -> None:
    text = parted(Product())
    start, end = text.index("        gemm("), text.index("    copy(acc")
    assert len(stages(text[:start] + text[end:]).launches) == 1


@pytest.mark.parametrize(("depth", "parts"), [(48, 1), (1024, 32)])
def test_parts_follow_from_dims(depth: int, parts: int) -> None:
    """One tile of trips of 16, at least two of them in a part."""
    text = parted(Product(M=16, N=64, K=depth))
    assert int(sym.Analyzer().simplify(stages(text).launches[0].grid[-1])) == parts
