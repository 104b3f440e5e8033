"""Addresses that lanes give to ldmatrix: constant distances lead to the elements that they should."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from tvm import tirx

from tilec.backends.cuda.analysis.layouts.tiles import swizzled
from tilec.backends.cuda.emit.emitter import DeviceEmitter
from tilec.backends.cuda.emit.memory import SharedStorage
from tilec.backends.cuda.emit.numbers.unsigned import Unsigned
from tilec.backends.cuda.emit.products.lane_places import lane_place
from tilec.ir.exprs import substitute
from tilec.ir.interp.expressions import Compiler, State
from tilec.ir.layout import Layout
from tilec.ir.nodes import Kernel, Region
from tilec.lowering.analysis.facts import Facts
from tilec.lowering.emission.memory import row_major_strides
from tilec.targets import parse_target

LANE, WARP = tirx.Var("lane", "int32"), tirx.Var("warp", "int32")


def context(tile, layout) -> DeviceEmitter:
    """A context that knows one shared tile."""
    ctx = DeviceEmitter(parse_target("sm_80"), Facts(Kernel("empty", (), (), ())), warps=4)
    shape = tuple(int(extent) for extent in tile.shape)
    bounds = tuple(tirx.const(extent, "int32") for extent in shape)
    data = tirx.decl_buffer((layout.size,), str(tile.dtype), name="data", scope="shared.dyn")
    ctx.storages[tile] = SharedStorage(
        data, str(tile.dtype), bounds, row_major_strides(shape), "int32", layout
    )
    return ctx


def walk(shape, across, unit, plain=False):
    """The tile, its layout, and the place of a lane that reads rows of A; warps are ``unit`` apart."""
    tile = tirx.decl_buffer(shape, "float16", name="tile", scope="shared.dyn")
    layout = Layout.row_major(shape) if plain else swizzled(tile)
    ctx = context(tile, layout)
    lane = Unsigned(tirx.Cast("uint32", LANE))
    row, column = (lane % 8 + lane // 16 * 8, lane // 8 % 2 * 8) if across else (lane % 16, lane // 16 * 8)
    part, nothing = (WARP * tirx.const(unit, "int32"), unit), (tirx.const(0, "int32"), 0)
    zero = tirx.const(0, "int32")
    region = Region(tile, (tirx.const(1, "int32"), zero, zero), (1, *shape[1:]))
    along, deep = list(range(0, unit, 16)), list(range(0, shape[1] if across else shape[2], 16))
    steps = (deep, along) if across else (along, deep)
    place = lane_place(region, row, column, (nothing, part) if across else (part, nothing), steps, 16, ctx)
    return layout, place, steps


def index_of(place, lanes, warp, rows, columns):
    """The elements that the addresses of some lanes name."""
    (load,) = place.pointer(rows, columns).args
    index = substitute(load.indices[0], {bind.var: bind.value for bind in place.binds})
    compiler = Compiler()
    value = compiler(index)
    return value(State({compiler.number(LANE): lanes, compiler.number(WARP): np.int32(warp)}))


@pytest.mark.parametrize(
    ("shape", "across", "unit", "plain"),
    [
        ((3, 64, 32), False, 32, False),
        ((3, 64, 64), False, 16, False),
        ((2, 32, 16), False, 16, False),
        ((3, 32, 128), True, 32, False),
        ((3, 32, 128), True, 64, False),
        ((2, 32, 96), True, 48, True),
    ],
)
def test_distances_lead_to_the_elements(shape, across, unit, plain):
    layout, place, steps = walk(shape, across, unit, plain)
    assert place is not None
    lanes = np.arange(32, dtype=np.int32)
    row, column = lanes % 16, lanes // 16 * 8
    if across:
        row, column = lanes % 8 + lanes // 16 * 8, lanes // 8 % 2 * 8
    for warp, rows, columns in itertools.product((0, 1), *steps):
        lead = (0, warp * unit) if across else (warp * unit, 0)
        element = (1, lead[0] + row + rows, lead[1] + column + columns)
        assert np.array_equal(index_of(place, lanes, warp, rows, columns), layout.offset(element))


def test_a_distance_that_carries_into_the_lanes_bits_is_refused():
    _, place, _ = walk((3, 32, 192), True, 48)
    assert place is None
