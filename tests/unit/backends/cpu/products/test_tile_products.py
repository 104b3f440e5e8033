"""Products on the matrix unit of x86: on the machine's own where it has one, always on an emulated one."""

from __future__ import annotations

import numpy as np
import pytest
from breadth import parametrized
from compiled import Library
from cpu_products import BIAS_RESIDUAL, ROW_SUM, STAGED, Product
from tile_unit import as_here, emulated_tiles

from tilec.targets import parse_target, runs_here

TARGET = parse_target("x86-64-v4+amx")
PRODUCTS = {
    "bfloat16": Product(dtype="bfloat16", bM=64, bN=64, bK=32, out="bfloat16", epilogue=STAGED),
    "whole": Product(dtype="bfloat16", bM=64, bN=96, bK=64),
    "half_columns": Product(dtype="bfloat16", bM=32, bN=48, bK=32, trans_b=True),
    "one_tile": Product(dtype="bfloat16", bM=16, bN=16, bK=32),
    "short_rows": Product(dtype="bfloat16", bM=20, bN=32, bK=32, trans_b=True, K=64),
    "short_words": Product(dtype="bfloat16", bM=40, bN=32, bK=24),
    "few_rows": Product(dtype="bfloat16", bM=16, bN=64, bK=32, trans_b=True, K=64),
    "few_rows_epilogue": Product(dtype="bfloat16", bM=32, bN=48, bK=64, trans_b=True, epilogue=BIAS_RESIDUAL),
    "few_rows_staged": Product(
        dtype="bfloat16", bM=16, bN=48, bK=32, trans_b=True, out="bfloat16", epilogue=STAGED
    ),
    "few_rows_int8": Product(
        dtype="uint8", b_dtype="int8", acc="int32", out="int32", bM=16, bN=64, bK=64, trans_b=True
    ),
    "trans_a": Product(dtype="bfloat16", bM=32, bN=32, bK=64, trans_a=True),
    "panels": Product(dtype="bfloat16", bM=64, bN=64, bK=32, N=128, panel=32),
    "clears": Product(dtype="bfloat16", bM=48, bN=32, bK=32, clears=True),
    "epilogue": Product(dtype="bfloat16", bM=64, bN=64, bK=64, K=64, trans_b=True, epilogue=BIAS_RESIDUAL),
    "epilogue_tail": Product(dtype="bfloat16", bM=37, bN=48, bK=64, K=64, epilogue=BIAS_RESIDUAL),
    "rows_summed": Product(dtype="bfloat16", bM=32, bN=64, bK=32, N=64, epilogue=ROW_SUM),
    "int8": Product(dtype="int8", acc="int32", out="int32", bM=64, bN=64, bK=64),
    "int8_trans_b": Product(dtype="int8", acc="int32", out="int32", bM=33, bN=48, bK=64, trans_b=True),
    "uint8_int8": Product(
        dtype="uint8", b_dtype="int8", acc="int32", out="int32", bM=32, bN=32, bK=64, trans_b=True
    ),
    "int8_uint8": Product(dtype="int8", b_dtype="uint8", acc="int32", out="int32", bM=32, bN=32, bK=64),
    "short_k": Product(dtype="bfloat16", acc="float32", out="float32", bM=32, bN=32, bK=64, K=6),
    "uint8": Product(dtype="uint8", acc="int32", out="int32", bM=32, bN=32, bK=32),
}
FAST = (
    "bfloat16", "half_columns", "short_words", "few_rows_epilogue", "few_rows_int8", "panels", "clears",
    "int8_trans_b", "uint8_int8", "rows_summed", "short_k",
)  # fmt: skip
SHAPES = ((1, 64, 32), (5, 67, 33), (16, 16, 64), (37, 96, 96), (64, 130, 70), (97, 64, 64))


def library(unit: str, name: str, product: Product) -> Library:
    """A product for the machine's unit or the emulated one."""
    texts = {name: product.text(name)}
    if unit == "machine":
        return Library(texts, TARGET)
    with emulated_tiles():
        return Library(texts, as_here(TARGET))


@pytest.mark.parametrize("unit", ["emulated", "machine"])
@parametrized("name", PRODUCTS, fast=FAST)
def test_product(name: str, unit: str) -> None:
    if unit == "machine" and not runs_here(TARGET):
        pytest.skip(f"this machine does not run {TARGET.name}")
    product, rng = PRODUCTS[name], np.random.default_rng(0)
    built = library(unit, name, product)
    assert any("tdpb" in line for line in built.notes(name))
    for m, n, k in SHAPES:
        n = n // product.panel * product.panel if product.panel else n
        shape = (product.M or m, product.N or max(n, product.panel), product.K or k)
        args = product.arguments(*shape, rng)
        built.run(name, args, dict(zip("MNK", shape, strict=True)))
        _compare(product, args, shape)


@pytest.mark.parametrize("unit", ["emulated", "machine"])
@pytest.mark.parametrize("dtype", ["bfloat16", "int8"])
def test_rows_that_alias_are_copied_and_others_read_in_place(dtype: str, unit: str) -> None:
    """Panels of ``b`` are more than the first cache holds."""
    if unit == "machine" and not runs_here(TARGET):
        pytest.skip(f"this machine does not run {TARGET.name}")
    sums = {"acc": "int32", "out": "int32"} if dtype == "int8" else {}
    product = Product(dtype=dtype, bM=64, bN=512, bK=128, whole=128, trans_b=True, **sums)
    built, rng = library(unit, "apart", product), np.random.default_rng(0)
    for k in (384, 4096 // (1 if dtype == "int8" else 2)):
        shape = (37, 300, k)
        args = product.arguments(*shape, rng)
        built.run("apart", args, dict(zip("MNK", shape, strict=True)))
        _compare(product, args, shape)


def _compare(product: Product, args: list[np.ndarray], shape: tuple[int, int, int]) -> None:
    scale = {"int32": 0, "float32": 1e-5, "bfloat16": 1.6e-2}[product.out] * shape[2] ** 0.5
    relative = 0.05 if product.epilogue is ROW_SUM else scale
    result, expected = args[-1].astype(np.float64), product.expected(args)
    np.testing.assert_allclose(result, expected, rtol=relative, atol=4 * scale, err_msg=f"{shape}")
