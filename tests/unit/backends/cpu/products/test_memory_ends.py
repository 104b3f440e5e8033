"""Products whose tiles reach beyond their tensors read nothing behind these: a page there may be nobody's."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from breadth import parametrized
from compiled import Library
from cpu_products import Product
from memory_ends import at_the_end

PRODUCTS = {
    "rows": Product(bM=64, bN=128, bK=64),
    "along": Product(bM=64, bN=128, bK=64, trans_b=True),
    "across": Product(bM=64, bN=128, bK=64, trans_a=True),
    "float16": Product(bM=64, bN=128, bK=64, dtype="float16", trans_b=True),
    "words": Product(bM=64, bN=128, bK=64, dtype="int8", acc="int32", out="int32"),
    "words_along": Product(bM=64, bN=128, bK=64, dtype="int8", acc="int32", out="int32", trans_b=True),
}
FAST = ("rows", "along", "words_along")


@cache
def library(name: str) -> Library:
    """A product, for one target."""
    return Library({name: PRODUCTS[name].text(name)}, "x86-64-v3")


@pytest.mark.parametrize(
    "dims", [(3, 136, 16), (65, 130, 67), (50, 8, 300), (1, 1, 1), (100, 257, 5)], ids=str
)
@parametrized("name", PRODUCTS, fast=FAST)
def test_nothing_behind_a_tensor_is_read(name: str, dims: tuple[int, int, int]) -> None:
    product = PRODUCTS[name]
    args = [at_the_end(each) for each in product.arguments(*dims, np.random.default_rng(0))]
    library(name).run(name, args, dict(zip("MNK", dims, strict=True)))
    np.testing.assert_allclose(args[-1], product.expected(args), rtol=1e-3, atol=1e-3)
