"""Matrix products of aarch64 against NumPy, by qemu's user mode where that is installed."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest
from aarch64 import QEMU, EmulatedLibrary
from cpu_products import BIAS_RESIDUAL, STAGED, Product

TARGETS = ("aarch64", "aarch64+dotprod", "aarch64+dotprod+fp16+bf16+i8mm")
PRODUCTS = {
    "float32": Product(),
    "float32_trans_a": Product(trans_a=True, bM=13),
    "bfloat16": Product(dtype="bfloat16", out="bfloat16", epilogue=STAGED),
    "bfloat16_trans_b": Product(dtype="bfloat16", trans_b=True, bM=37, bN=40, bK=24, epilogue=BIAS_RESIDUAL),
    "bfloat16_trans_a": Product(dtype="bfloat16", trans_a=True, bM=13),
    "int8": Product(dtype="int8", acc="int32", out="int32", bM=13),
    "int8_trans_b": Product(dtype="int8", acc="int32", out="int32", trans_b=True, bK=32),
    "one_row": Product(dtype="bfloat16", bM=1),
    "narrow": Product(bM=32, bN=4, bK=64, epilogue=BIAS_RESIDUAL),
    "odd_words": Product(dtype="bfloat16", bM=7, bK=20),
    "uint8_int8": Product(dtype="uint8", b_dtype="int8", acc="int32", out="int32", trans_b=True),
    "float16": Product(dtype="float16", acc="float16", out="float16"),
    "uint8": Product(dtype="uint8", acc="int32", out="int32"),
}
SHAPES = ((1, 64, 16), (31, 65, 17), (45, 96, 47))
TOLERANCE = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 1.6e-2, "int32": 0}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(QEMU is None, reason="qemu-aarch64 (package qemu-user) is not installed"),
]


@lru_cache(maxsize=1)
def library(target: str) -> EmulatedLibrary:
    return EmulatedLibrary({name: product.text(name) for name, product in PRODUCTS.items()}, target)


@pytest.mark.parametrize(("target", "name"), [(target, name) for target in TARGETS for name in PRODUCTS])
def test_product(target: str, name: str) -> None:
    product, rng = PRODUCTS[name], np.random.default_rng(0)
    for shape in SHAPES:
        args = product.arguments(*shape, rng)
        library(target).run(name, args, dict(zip("MNK", shape, strict=True)))
        scale = TOLERANCE[product.out] * shape[2] ** 0.5
        result, expected = args[-1].astype(np.float64), product.expected(args)
        np.testing.assert_allclose(result, expected, rtol=scale, atol=4 * scale, err_msg=f"{shape}")
