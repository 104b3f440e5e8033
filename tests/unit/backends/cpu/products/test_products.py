"""Matrix products against NumPy: tails in every direction, transposes, packed weights, epilogues, types."""

from __future__ import annotations

import numpy as np
import pytest
from breadth import diagonal, parametrized
from compiled import LEVELS, Library
from cpu_products import BIAS_RESIDUAL, ROW_MAX, ROW_SUM, STAGED, Product

from tilec.targets import parse_target, runs_here

PRODUCTS = {
    "dynamic": Product(),
    "pinned": Product(M=32, N=128, K=64),
    "trans_a": Product(trans_a=True),
    "trans_b": Product(trans_b=True),
    "trans_both": Product(trans_a=True, trans_b=True),
    "odd_tile": Product(bM=13, bN=43, bK=7),
    "few_rows": Product(bM=4, N=192),
    "few_rows_dynamic": Product(bM=4, bN=128, bK=8),
    "one_row": Product(bM=1, bN=32),
    "one_row_dynamic": Product(bM=1, bN=256, bK=8),
    "eight_rows": Product(bM=8, bN=64),
    "wide_tile": Product(bM=64, bN=256, bK=64),
    "many_rows": Product(bM=96, bN=256, epilogue=BIAS_RESIDUAL),
    "bands": Product(bM=136, bN=256, bK=40, epilogue=BIAS_RESIDUAL),
    "bands_pinned": Product(M=141, bM=144, N=320, bN=320, K=75, bK=75),
    "bands_float16": Product(dtype="float16", bM=136, bN=256, bK=40, out="float16", epilogue=STAGED),
    "bands_trans_b": Product(dtype="bfloat16", trans_b=True, bM=136, bN=256, bK=40),
    "bands_int8": Product(dtype="int8", acc="int32", out="int32", trans_b=True, bM=136, bN=256, bK=40),
    "bands_uint8_int8": Product(
        dtype="uint8", b_dtype="int8", acc="int32", out="int32", M=61, N=300, K=75, bM=136, bN=256, bK=80
    ),
    "across": Product(bM=16, N=128, trans_b=True, epilogue=BIAS_RESIDUAL),
    "across_pinned": Product(M=3, bM=4, N=96, bN=24, K=64, trans_b=True),
    "across_one_row": Product(bM=1, N=64, trans_b=True, bK=24),
    "across_float16": Product(dtype="float16", bM=8, N=128, trans_b=True),
    "across_bfloat16": Product(dtype="bfloat16", bM=8, N=64, K=40, trans_b=True),
    "across_int8": Product(dtype="int8", acc="int32", out="int32", bM=8, N=64, trans_b=True),
    "across_int8_many": Product(
        dtype="int8", acc="int32", out="int32", M=29, bM=16, N=96, K=144, trans_b=True
    ),
    "across_int8_deep": Product(dtype="int8", acc="int32", out="int32", bM=4, K=200, trans_b=True),
    "across_uint8": Product(dtype="uint8", acc="int32", out="int32", bM=1, K=75, bK=25, trans_b=True),
    "across_bfloat16_deep": Product(
        dtype="bfloat16", bM=6, K=120, bK=40, trans_b=True, epilogue=BIAS_RESIDUAL
    ),
    "copied_int8": Product(dtype="int8", acc="int32", out="int32", bM=16, K=1100, bK=1024, trans_b=True),
    "copied_bfloat16": Product(dtype="bfloat16", bM=32, K=1030, bK=512, trans_b=True, epilogue=BIAS_RESIDUAL),
    "across_if_few": Product(N=64, K=64, bK=64, trans_b=True, clears=True, epilogue=ROW_SUM),
    "across_if_few_ends": Product(N=40, K=64, bK=64, trans_b=True, clears=True, epilogue=ROW_SUM),
    "narrow": Product(bM=32, bN=8, bK=128),
    "narrow_clears": Product(bM=16, bN=4, K=64, bK=64, clears=True),
    "narrow_trans_b": Product(bM=32, bN=4, K=70, bK=64, trans_b=True, epilogue=BIAS_RESIDUAL),
    "narrow_bfloat16": Product(dtype="bfloat16", N=3, bM=32, bN=4, bK=64, out="bfloat16"),
    "narrow_float16": Product(b_dtype="float16", bM=32, bN=8, bK=128, epilogue=STAGED),
    "rounded_a": Product(dtype="bfloat16", a_dtype="float32", bM=24, K=70, bK=32, epilogue=BIAS_RESIDUAL),
    "rounded_a_panels": Product(dtype="bfloat16", a_dtype="float32", N=64, panel=32),
    "rounded_a_rows_summed": Product(
        dtype="bfloat16", a_dtype="float32", N=64, trans_b=True, epilogue=ROW_SUM
    ),
    "panels": Product(N=128, K=80, panel=32, bN=128),
    "panels_dynamic": Product(panel=32),
    "panels_of_16": Product(N=128, panel=16, bN=64),
    "epilogue": Product(N=192, epilogue=BIAS_RESIDUAL),
    "epilogue_dynamic": Product(trans_b=True, epilogue=BIAS_RESIDUAL),
    "epilogue_panels": Product(N=192, K=96, panel=32, epilogue=BIAS_RESIDUAL),
    "rows_summed": Product(N=64, epilogue=ROW_SUM),
    "rows_compared": Product(N=64, K=32, panel=32, epilogue=ROW_MAX),
    "staged": Product(epilogue=STAGED),
    "clears": Product(clears=True, bK=16),
    "clears_dynamic": Product(K=16, clears=True),
    "clears_panels": Product(N=64, K=16, panel=32, clears=True, epilogue=ROW_SUM),
    "float16": Product(dtype="float16", out="float16", epilogue=STAGED),
    "float16_trans_b": Product(dtype="float16", trans_b=True),
    "float16_panels": Product(dtype="float16", N=128, panel=32),
    "float16_sums": Product(dtype="float16", acc="float16", out="float16"),
    "float64": Product(dtype="float64", acc="float64", out="float64"),
    "bfloat16": Product(dtype="bfloat16", out="bfloat16", epilogue=STAGED),
    "bfloat16_trans_b": Product(dtype="bfloat16", trans_b=True),
    "trans_b_pinned": Product(bM=64, N=128, K=64, trans_b=True),
    "bfloat16_deep": Product(dtype="bfloat16", trans_b=True, bK=40),
    "bfloat16_trans_a": Product(dtype="bfloat16", trans_a=True, bK=24),
    "bfloat16_odd": Product(dtype="bfloat16", bK=7, bN=43),
    "int8": Product(dtype="int8", acc="int32", out="int32"),
    "int8_trans_b": Product(dtype="int8", acc="int32", out="int32", trans_b=True),
    "int8_deep": Product(dtype="int8", acc="int32", out="int32", trans_a=True, trans_b=True, bK=80),
    "int8_odd": Product(dtype="int8", acc="int32", out="int32", bK=6, bN=40),
    "uint8": Product(dtype="uint8", acc="int32", out="int32"),
    "uint8_int8": Product(dtype="uint8", b_dtype="int8", acc="int32", out="int32", trans_b=True),
    "int8_uint8": Product(dtype="int8", b_dtype="uint8", acc="int32", out="int32"),
    "int8_panels": Product(dtype="int8", acc="int32", out="int32", N=128, panel=32),
}

#: (M, N, K): below, at and above every block size, and primes; a sum of nothing.
SHAPES = (
    (1, 64, 16),
    (2, 67, 33),
    (3, 1, 1),
    (31, 65, 17),
    (32, 128, 64),
    (45, 96, 47),
    (64, 130, 5),
    (5, 40, 0),
)

TOLERANCE = {"float64": 1e-12, "float32": 1e-5, "float16": 2e-3, "bfloat16": 1.6e-2, "int32": 0}
#: Levels with features, for the products of which they change something.
FURTHER = ("x86-64-v3+avxvnni", "x86-64-v4+vnni+avx512bf16")
CHANGED = [name for name, product in PRODUCTS.items() if product.dtype in ("bfloat16", "int8", "uint8")]
#: Level and product: each product on one of the levels that this machine runs, where it runs one.
FAST = [
    *diagonal([level for level in LEVELS if runs_here(parse_target(level))] or LEVELS, list(PRODUCTS)),
    *diagonal(FURTHER, CHANGED),
]
CASES = [
    *((level, name) for level in LEVELS for name in PRODUCTS),
    *((level, name) for level in FURTHER for name in CHANGED),
]


@parametrized(("level", "name"), CASES, fast=FAST)
def test_product(level: str, name: str) -> None:
    if not runs_here(parse_target(level)):
        pytest.skip(f"this machine does not run {level}")
    product, rng = PRODUCTS[name], np.random.default_rng(0)
    library = Library({name: product.text(name)}, level)
    for shape in _shapes(product):
        args = product.arguments(*shape, rng)
        library.run(name, args, dict(zip("MNK", shape, strict=True)))
        scale = TOLERANCE[product.out] * max(1, shape[2] ** 0.5)
        result, expected = args[-1].astype(np.float64), product.expected(args)
        relative, name_of = _relative(product, scale), f"{name} {shape}"
        np.testing.assert_allclose(result, expected, rtol=relative, atol=4 * scale, err_msg=name_of)


def _relative(product: Product, scale: float) -> float:
    return 0.05 if product.epilogue is ROW_SUM else scale


def _shapes(product: Product) -> set[tuple[int, int, int]]:
    """The shapes that a product admits; its pinned extents replace those of `SHAPES`. One that clears in its
    first step has no sums without a step."""
    found = set()
    for m, n, k in SHAPES:
        if product.clears and not k:
            continue
        n = max(n // product.panel, 1) * product.panel if product.panel else n
        found.add((product.M or m, product.N or n, product.K or k))
    return found
