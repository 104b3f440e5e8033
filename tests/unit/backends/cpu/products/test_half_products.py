"""Products of float16 into float16, multiplied as they are where a target can; what LLVM makes of them for
processors that cannot is run here."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from breadth import diagonal, parametrized
from compiled import Library
from cpu_products import STAGED, Product

from tilec.backends.cpu.nodes import MicroGemm
from tilec.backends.pipeline import lower
from tilec.ir.nodes import walk
from tilec.ir.text.parser import parse_kernel
from tilec.targets import Target, parse_target

HALF = {"dtype": "float16", "acc": "float16", "out": "float16"}
PRODUCTS = {
    "plain": Product(**HALF),
    "pinned": Product(M=32, N=128, K=64, **HALF),
    "trans_a": Product(trans_a=True, **HALF),
    "trans_b": Product(trans_b=True, bM=13, bN=43, bK=7, **HALF),
    "one_row": Product(bM=1, bN=256, bK=8, **HALF),
    "few_rows": Product(bM=7, bN=128, bK=8, **HALF),
    "panels": Product(N=128, panel=32, **HALF),
    "staged": Product(epilogue=STAGED, **HALF),
}
SHAPES = ((1, 64, 16), (3, 1, 1), (31, 65, 17), (45, 96, 47))
LEVELS = ("x86-64-v3", "x86-64-v4")
CASES = [(level, name) for level in LEVELS for name in PRODUCTS]
FAST = diagonal(LEVELS, list(PRODUCTS))


def without_the_instructions(level: str) -> Target:
    """A level whose products are made as if it had those of float16, and whose code does without them."""
    return replace(parse_target(level), features=("avx512fp16",))


@parametrized(("level", "name"), CASES, fast=FAST)
def test_product(level: str, name: str) -> None:
    product, rng = PRODUCTS[name], np.random.default_rng(0)
    library = Library({name: product.text(name)}, without_the_instructions(level))
    for shape in SHAPES:
        pinned = [getattr(product, axis) for axis in "MNK"]
        M, N, K = (own or size for own, size in zip(pinned, shape, strict=True))
        args = product.arguments(M, N, K, rng)
        library.run(name, args, {"M": M, "N": N, "K": K})
        scale = 2e-3 * K**0.5
        np.testing.assert_allclose(
            args[-1], product.expected(args), rtol=scale, atol=4 * scale, err_msg=f"{shape}"
        )


@pytest.mark.parametrize("level", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("columns", [12, 20, 24, 44])
def test_sums_of_a_tile_that_panels_do_not_fill(columns: int, level: str) -> None:
    """The next row of sums begins behind the columns, not behind the last vector of a panel."""
    product, rng = Product(bM=16, bN=columns, bK=4, trans_a=True, **HALF), np.random.default_rng(1)
    library = Library({"k": product.text("k")}, level)
    for n in (43, 20, 7):
        args = product.arguments(48, n, 41, rng)
        args[:2] = (np.round(arg) for arg in args[:2])
        library.run("k", args, {"M": 48, "N": n, "K": 41})
        np.testing.assert_array_equal(args[-1], product.expected(args).astype(np.float16), err_msg=f"{n}")


@pytest.mark.parametrize(
    ("target", "sums", "halves", "block"),
    [
        ("aarch64+fp16", "float16", True, (6, 32)),
        ("x86-64-v4+avx512fp16", "float16", True, (8, 64)),
        ("aarch64+fp16", "float32", False, (6, 16)),
        ("x86-64-v4+avx512fp16", "float32", False, (8, 32)),
        ("aarch64", "float16", False, (6, 16)),
        ("x86-64-v4", "float16", False, (8, 32)),
    ],
)
def test_sums_decide(target: str, sums: str, halves: bool, block: tuple[int, int]) -> None:
    product = Product(dtype="float16", acc=sums, out="float16")
    kernel = lower(parse_kernel(product.text("k")), parse_target(target))
    (gemm,) = (stmt for stmt in walk(kernel.body) if isinstance(stmt, MicroGemm))
    assert (gemm.block.halves, (gemm.block.rows, gemm.block.cols)) == (halves, block)


def test_float8_into_float16_is_multiplied_in_float32() -> None:
    text = Product(dtype="float8_e4m3fn", acc="float16", out="float16").text("k")
    kernel = lower(parse_kernel(text), parse_target("aarch64+fp16"))
    (gemm,) = (stmt for stmt in walk(kernel.body) if isinstance(stmt, MicroGemm))
    assert not gemm.block.halves
