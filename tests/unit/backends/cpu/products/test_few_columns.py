"""Products of few rows and columns: blocks as wide as their tile, whose sums take steps of K in turns (alike
in all tiles), last columns in a part of a vector, and tiles that are done the other way round."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
from compiled import Library
from cpu_products import BIAS_RESIDUAL, ROW_SUM, Product

from tilec.backends.cpu.nodes import MicroGemm, RegisterBlock
from tilec.backends.cpu.products.blocks.register_tile import turns_of
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.ir.nodes import walk
from tilec.ir.text.parser import parse_kernel
from tilec.targets import parse_target, runs_here

ROWS = 3
#: Rows of tiles that read the second operand where it lies, and that pack it.
TILES = {"in_place": 24, "packed": 136, "with_rest": 31}


@lru_cache(maxsize=1)
def library() -> Library:
    """Tiles of one row and of a few, with several steps of K."""
    texts = {f"rows_{bM}": Product(bM=bM, bN=64, bK=64).text("product") for bM in (1, ROWS)}
    return Library(texts, "x86-64-v3")


@pytest.mark.parametrize("columns", [1, 8, 20, 64])
@pytest.mark.parametrize("rows", [1, ROWS])
def test_every_step_counts_once(rows: int, columns: int) -> None:
    """Small integers, whose sums are exact in any order; depths around trips and steps."""
    numbers = np.random.default_rng(0)
    for depth in (1, 3, 4, 7, 64, 66, 197):
        a, b = (
            numbers.integers(-8, 9, shape).astype(np.float32) for shape in ((rows, depth), (depth, columns))
        )
        c = np.full((rows, columns), np.nan, np.float32)
        library().run(f"rows_{rows}", [a, b, c], {"M": rows, "N": columns, "K": depth})
        np.testing.assert_array_equal(c, a @ b)


@pytest.mark.parametrize(
    ("rows", "vectors", "turns"), [(1, 1, 4), (1, 2, 4), (2, 2, 2), (3, 1, 2), (1, 8, 1)]
)
def test_few_sums_take_turns(rows: int, vectors: int, turns: int) -> None:
    block = RegisterBlock(rows, cols=16 * vectors, lanes=16, unroll=4)
    assert turns_of(block) == turns


@pytest.mark.parametrize("columns", [16, 64, 256])
def test_blocks_are_no_wider_than_their_tile(columns: int) -> None:
    """Where they are, columns that fill no vector are done by ever narrower blocks in place of by masks."""
    kernel = parse_kernel(Product(bM=1, bN=columns, bK=64).text("product"))
    lowered = lower(kernel, parse_target("x86-64-v4"), until="forward_operands")
    (product,) = (
        stmt for launch in lowered.launches for stmt in walk(launch.body) if isinstance(stmt, MicroGemm)
    )
    assert product.block.cols == min(columns, 128)


@pytest.mark.parametrize("tile", TILES)
def test_vectors_and_halves_have_every_column(tile: str) -> None:
    """Small integers, exact in any order; columns around halves of vectors of 512 bits."""
    if not runs_here(parse_target("x86-64-v4")):
        pytest.skip("this machine does not run x86-64-v4")
    library, numbers = halves(), np.random.default_rng(0)
    for columns in (1, 8, 9, 16, 17, 24, 25, 32, 40, 41, 57, 64, 65, 89):
        rows, depth = TILES[tile], 21
        a, b = (
            numbers.integers(-8, 9, shape).astype(np.float32) for shape in ((rows, depth), (depth, columns))
        )
        c = np.full((rows, columns), np.nan, np.float32)
        library.run(tile, [a, b, c], {"M": rows, "N": columns, "K": depth})
        np.testing.assert_array_equal(c, a @ b)


@lru_cache(maxsize=1)
def halves() -> Library:
    """Tiles of few vectors."""
    texts = {name: Product(M=rows, bM=rows, bN=64, bK=16).text("product") for name, rows in TILES.items()}
    return Library(texts, "x86-64-v4")


@pytest.mark.parametrize(("columns", "has_halves"), [(64, True), (512, False)])
def test_tiles_of_few_vectors_have_halves(columns: int, has_halves: bool) -> None:
    target = parse_target("x86-64-v4")
    kernel = parse_kernel(Product(M=8, bM=8, bN=columns, bK=16).text("product"))
    (launch,) = to_tir(lower(kernel, target), target).launches
    assert ("float32x8" in launch.func.script()) is has_halves


#: Rows, columns and K of tiles, of which some read the second operand where it lies, some pack it, and some
#: go by bands.
ORDERS = {"wide": (24, 320, 64), "narrow": (8, 64, 128), "packed": (136, 64, 192), "bands": (136, 256, 128)}


@lru_cache(maxsize=1)
def orders() -> Library:
    """Tiles that threads may choose among: steps of K are multiples of 64."""
    tiles = {name: Product(bM=bM, bN=bN, bK=bK) for name, (bM, bN, bK) in ORDERS.items()}
    return Library({name: tile.text("product") for name, tile in tiles.items()}, "x86-64-v4")


@pytest.mark.parametrize("rows", [1, 3, 5, 15, 150])
@pytest.mark.parametrize("columns", [5, 10, 23, 32, 45, 346])
def test_tiles_give_the_same_bits(rows: int, columns: int) -> None:
    """Rows and columns that fill no block, whose sums take turns."""
    if not runs_here(parse_target("x86-64-v4")):
        pytest.skip("this machine does not run x86-64-v4")
    numbers = np.random.default_rng(0)
    a, b = (numbers.standard_normal(shape, np.float32) for shape in ((rows, 333), (333, columns)))
    found = {}
    for name in ORDERS:
        c = np.full((rows, columns), np.nan, np.float32)
        orders().run(name, [a, b, c], {"M": rows, "N": columns, "K": 333})
        np.testing.assert_allclose(c, a @ b, rtol=1e-3, atol=1e-3)
        found[c.tobytes()] = name
    assert len(found) == 1, found


def test_tiles_side_by_side_share_their_turns() -> None:
    """Sums of both keep multipliers busy together."""
    alone = RegisterBlock(rows=4, cols=16, lanes=16, unroll=4)
    assert (turns_of(alone), turns_of(replace(alone, beside=1))) == (2, 1)


@pytest.mark.parametrize(
    ("columns", "depth", "other", "form"),
    [
        (8, 128, {}, "across"),
        (8, 128, {"epilogue": BIAS_RESIDUAL}, "across"),
        (8, 128, {"K": 128, "clears": True}, "across"),
        (8, 128, {"clears": True}, "fma"),
        (16, 256, {}, "fma"),
        (8, 96, {}, "fma"),
        (8, 128, {"epilogue": ROW_SUM}, "fma"),
    ],
    ids=["narrow", "elementwise", "cleared", "cleared_first", "wide", "shallow", "rows_summed"],
)
def test_narrow_tiles_have_vectors_along_k(columns: int, depth: int, other: dict, form: str) -> None:
    """Where these are deep enough for as many sums, and what follows can be turned."""
    kernel = parse_kernel(Product(bM=64, bN=columns, bK=depth, **other).text("product"))
    (launch,) = lower(kernel, parse_target("x86-64-v4"), until="forward_operands").launches
    (product,) = (stmt for stmt in walk(launch.body) if isinstance(stmt, MicroGemm))
    assert product.block.form == form
