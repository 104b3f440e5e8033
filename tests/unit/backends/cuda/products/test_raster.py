"""The order of tiles of a grid: bands reach every tile once, and stay within their height."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from cuda_kernels import gemm
from tvm import tirx

from tilec.backends.cuda.emit.grid import raster
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.ir.exprs import substitute
from tilec.ir.interp.expressions import Compiler, State
from tilec.language.frontend.schedules import scheduled
from tilec.targets import parse_target


def walked(launch, columns, rows, monkeypatch) -> list[tuple[int, int]]:
    """The tiles in the order of the hardware's block numbers."""
    extents = {axis: tirx.Var(f"extent_{axis}", "uint32") for axis in "xy"}
    monkeypatch.setattr(raster, "grid_extent", lambda axis: SimpleNamespace(call=lambda: extents[axis]))
    blocks = [tirx.Var("x", "int32"), tirx.Var("y", "int32")]
    made, places = raster.banded(launch, blocks)
    values = {stmt.var: stmt.value for stmt in made if isinstance(stmt, tirx.Bind)}
    stored = [stmt.value for stmt in made if isinstance(stmt, tirx.BufferStore)] or places
    for _ in values:
        stored = [substitute(value, values) for value in stored]
    compiler = Compiler()
    number = np.arange(columns * rows)
    given = {blocks[0]: number % columns, blocks[1]: number // columns}
    state = {compiler.number(var): array.astype(np.int32) for var, array in given.items()}
    state |= {
        compiler.number(extents[axis]): np.uint32(size)
        for axis, size in zip("xy", (columns, rows), strict=True)
    }
    found = [np.broadcast_to(compiler(value)(State(state)), number.shape) for value in stored]
    return list(zip(*found, strict=True))


@pytest.mark.parametrize(("columns", "rows"), [(5, 7), (32, 16), (1, 9), (9, 1)])
@pytest.mark.parametrize("order", ["row", "column"])
def test_bands_reach_every_tile_once(columns, rows, order, monkeypatch) -> None:
    launch = scheduled(gemm(), {"group": 4, "group_order": order}).launches[0]
    tiles = walked(launch, columns, rows, monkeypatch)
    assert sorted(tiles) == [(x, y) for x in range(columns) for y in range(rows)]
    axis = 1 if order == "row" else 0
    bands = [tile[axis] // 4 for tile in tiles]
    assert bands == sorted(bands)


def test_tiles_go_as_the_hardware_counts_where_nothing_is_asked(monkeypatch) -> None:
    tiles = walked(gemm().launches[0], 3, 2, monkeypatch)
    assert tiles == [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)]


def test_keys_of_other_roads_are_named() -> None:
    target = parse_target("sm_80")
    kernel = scheduled(gemm(), {"group": 8, "pingpong": True, "split_k": 2, "unroll": 1, "scale_sums": True})
    notes = to_tir(lower(kernel, target), target).launches[0].notes
    assert [note.partition(" ")[0] for note in notes] == ["pingpong", "split_k", "unroll", "scale_sums"]
