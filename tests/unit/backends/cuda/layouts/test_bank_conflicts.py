"""Bank conflicts: swizzles that leave none, and notes on those that are left."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cuda_kernels import gemm, tile_kernel
from told import losses, told
from tvm import tirx

from tilec.backends.cuda.analysis.accesses.bank_conflicts import conflicts, tile_layouts, waits
from tilec.backends.cuda.analysis.blocks.threads import warps_of
from tilec.backends.cuda.analysis.layouts.tiles import operand_conflicts, swizzled
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.ir.nodes import Alloc, Launch
from tilec.targets import parse_target

SM80 = parse_target("sm_80")


@pytest.mark.parametrize("columns", [16, 32, 64, 96, 128, 160, 192, 256])
@pytest.mark.parametrize("dtype", ["float16", "int8", "float32"])
def test_operands_of_whole_chunks_meet_no_bank_twice(columns, dtype) -> None:
    tile = tirx.decl_buffer((2, 64, columns), dtype, name="tile", scope="shared.dyn")
    size = {"float16": 2, "int8": 1, "float32": 4}[dtype]
    assert operand_conflicts(swizzled(tile), size, across=False) == 2  # one way to read, one to write


@pytest.mark.parametrize("columns", [64, 128, 256])
def test_float32_across_its_rows_meets_no_bank_twice(columns) -> None:
    tile = tirx.decl_buffer((3, 32, columns), "float32", name="tile", scope="shared.dyn")
    assert operand_conflicts(swizzled(tile, across=True), 4, across=True) == 2


@pytest.mark.parametrize("columns", [8, 16, 32, 64, 128])
@pytest.mark.parametrize("across", [False, True])
def test_float64_meets_no_bank_twice(columns, across) -> None:
    tile = tirx.decl_buffer((3, 32, columns), "float64", name="tile", scope="shared.dyn")
    assert operand_conflicts(swizzled(tile, across), 8, across) == 2


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"bK": 64, "num_stages": 2},
        {"bN": 256, "threads": 256},
        {"bN": 64, "bM": 64},
        {"bN": 80, "bM": 64},
        {"bN": 96, "bM": 64, "bK": 48},
    ],
)
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_a_product_has_no_conflicts_left(config, dtype) -> None:
    assert conflicts(lower(gemm(dtype, **config), SM80).launches[0]) == []


def notes_of(*lines: str) -> list[str]:
    kernel = lower(tile_kernel(*lines), SM80)
    return [note for note in told(to_tir(kernel, SM80).launches[0]) if "conflicts" in note]


def test_conflicts_that_are_left_are_told() -> None:
    notes = notes_of(
        's = alloc(float32, (512,), "shared.dyn")',
        "for i in parallel(512):",
        "    s[i] = x[i % 64]",
        "for i in parallel(64):",
        "    y[i] = s[i * 8]",
    )
    assert any("s is read with 8-way bank conflicts" in note for note in notes)


def worst(launch: Launch) -> int:
    """The ways of the slowest access of a launch."""
    layouts = tile_layouts(launch)
    return max(wait.ways for stmt in launch.body for wait in waits(stmt, layouts, warps_of(launch)))


@pytest.mark.parametrize("columns", [16, 64, 96])
@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8"])
def test_a_tile_that_is_read_across_its_rows_is_swizzled(dtype, columns) -> None:
    lines = (
        f's = alloc({dtype}, (64, {columns}), "shared.dyn")',
        f"for i, j in parallel(64, {columns}):",
        f"    s[i, j] = cast({dtype}, x[j % 64])",
        f"for i, j in parallel({columns}, 64):",
        "    y[j] = cast(float32, s[j, i])",
    )
    (launch,) = lower(tile_kernel(*lines), SM80).launches
    bare = tuple(replace(stmt, layout=None) if isinstance(stmt, Alloc) else stmt for stmt in launch.body)
    assert worst(replace(launch, body=bare)) >= 8
    assert worst(launch) <= 3


def test_a_product_without_ldmatrix_says_so() -> None:
    notes = losses(to_tir(lower(gemm("float32"), SM80), SM80).launches[0])
    assert notes == [
        "T.gemm reads Bs in pieces of 4 bytes, without ldmatrix: it transposes 16-bit elements alone",
    ]
