"""Which copies from tensors to shared tiles TMA carries out: boxes of the tensor, whole tiles."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.accesses.vectors import divides
from tilec.backends.cuda.analysis.layouts.tiles import static_extents, whole_tile
from tilec.backends.cuda.analysis.products.units import ALIGNMENT
from tilec.backends.cuda.analysis.products.wgmma import slab_bytes
from tilec.backends.cuda.warp_roles.nodes import TensorMap
from tilec.backends.cuda.warp_roles.tma import LARGEST_BOX, STRIDE_BYTES, TENSORS, check_tensor
from tilec.backends.cuda.warp_roles.unfit import Unfit, need
from tilec.ir.exprs import inlined, int_value
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tvm.ir import Expr, Var

    from tilec.ir.layout import Layout
    from tilec.ir.stmt import Region
    from tilec.lowering.analysis.facts import Facts


@dataclass(frozen=True)
class Boxes:
    """How a tile, or rows of one, move: boxes of ``map``, ``count`` of them along the tensor's last axis,
    ``step`` bytes of the tile from one to the next, ``pitch`` from one row to the next."""

    map: TensorMap
    count: int
    step: int
    pitch: int

    @property
    def bytes(self) -> int:
        """Of the tile."""
        return self.count * self.step


def check_box(
    src: Region,
    start: tuple[Expr, ...],
    tile: Region,
    is_operand: bool,
    facts: Facts,
    is_spaced: bool = False,
) -> None:
    """Unfit where TMA cannot bring a region of a tensor to a tile, or to a version of one. ``start`` is that
    of the region without names; tiles of products (``is_operand``) lie in slabs, others row by row, of any
    length where their versions begin at multiples of `ALIGNMENT` all the same (``is_spaced``)."""
    size = element_bytes(str(tile.buffer.dtype))
    name = tile.buffer.name
    need(str(src.buffer.scope()) in TENSORS, f"{src.buffer.name} is no tensor of the call")
    need(
        str(src.buffer.dtype) == str(tile.buffer.dtype),
        f"{name} is converted on its way",
        remedy=f"allocate it with the type of {src.buffer.name}",
    )
    _check_extents(src, tile)
    _check_bytes(tile, is_operand, is_spaced)
    need(
        divides(STRIDE_BYTES // size, start[-1], facts),
        f"{name} is not known to start at a multiple of {STRIDE_BYTES} bytes of a row of {src.buffer.name}",
        remedy="start at multiples of the tile's extents",
    )
    check_tensor(src.buffer, facts, least=1)


def tile_of_box(box: Region, values: Mapping[Var, Expr], facts: Facts, what: str) -> Var | None:
    """A shared tile for a box of a tensor, its axes of one element left out, called after the tensor and
    ``what`` it is; None where TMA does not bring the box. ``values`` are those of names."""
    shape = [extent for part in box.extent if (extent := int_value(part) or 0) != 1]
    if 0 in shape:
        return None
    start, name = tuple(inlined(each, values) for each in box.start), f"{box.buffer.name}_{what}"
    tile = tirx.decl_buffer(shape, str(box.buffer.dtype), name=name, scope="shared.dyn")
    try:
        check_box(box, start, whole_tile(tile), False, facts)
    except Unfit:
        return None
    return tile


def _check_extents(src: Region, tile: Region) -> None:
    """A tile is a box of the tensor, of two axes or a few more, and no larger than boxes are."""
    name, size = tile.buffer.name, element_bytes(str(tile.buffer.dtype))
    shape, wide = _wide(tile), [int_value(extent) for extent in src.extent if int_value(extent) != 1]
    need(
        None not in wide and wide == shape and int_value(src.extent[-1]) == static_extents(tile.buffer)[-1],
        f"{name} is no box of {src.buffer.name}",
        remedy="copy whole tiles, the tensor's last axis along that of the tile",
    )
    need(len(shape) <= 2 or shape[-1] * size in (32, 64, 128), f"{name} has more than two axes")
    need(
        max(shape[:-1], default=1) <= LARGEST_BOX,
        f"a box of {' x '.join(map(str, shape))} is beyond {LARGEST_BOX}",
        remedy=f"choose tiles of up to {LARGEST_BOX} rows",
    )


def _check_bytes(tile: Region, is_operand: bool, is_spaced: bool) -> None:
    """Rows of a tile and the tile itself are as long as boxes in shared memory are."""
    name, shape, size = tile.buffer.name, _wide(tile), element_bytes(str(tile.buffer.dtype))
    need(
        shape[-1] * size % STRIDE_BYTES == 0,
        f"rows of {shape[-1]} {tile.buffer.dtype} are no multiple of {STRIDE_BYTES} bytes",
        remedy="choose wider tiles",
    )
    whole = prod(shape) * size
    need(
        whole % ALIGNMENT == 0 or (is_spaced and not is_operand),
        f"{name} has {whole} bytes, no multiple of {ALIGNMENT}",
        remedy="choose larger tiles",
    )
    in_slabs = is_operand and slab_bytes(tile.buffer) != 0
    need(
        in_slabs or shape[-1] <= LARGEST_BOX or (len(shape) == 1 and _row(shape[-1], size) != 0),
        f"rows of {shape[-1]} elements are beyond {LARGEST_BOX}",
    )


def _wide(tile: Region) -> list[int]:
    """The extents of a tile's region beyond 1, or its last one."""
    found = [int_value(extent) or 0 for extent in tile.extent if int_value(extent) != 1]
    return found or [1]


def _row(columns: int, size: int) -> int:
    """The widest part of a vector that a box may have; 0 where there is none."""
    parts = (columns // count for count in range(1, columns + 1) if columns % count == 0)
    return next((part for part in parts if part <= LARGEST_BOX and part * size % ALIGNMENT == 0), 0)


def boxes_of(src: Region, tile: Var, layout: Layout | None) -> Boxes:
    """The boxes of a copy that `check_box` has let pass, by the layout of the tile."""
    size = element_bytes(str(tile.dtype))
    swizzle = 0 if layout is None or layout.swizzle is None else layout.swizzle.width * 16
    box = [int_value(extent) or 1 for extent in src.extent]
    columns = box[-1]
    box[-1] = swizzle // size if swizzle else _row(columns, size) or columns
    pitch = size * box[-1]
    wide = [extent for extent in box[:-1] if extent != 1]
    rows = static_extents(tile)[-2] if len(wide) == 1 else prod(wide)
    return Boxes(TensorMap(src.buffer, tuple(box), swizzle), -(-columns // box[-1]), pitch * rows, pitch)


def part_map(dst: Region, tile: Var, box: tuple[int, int]) -> TensorMap:
    """The map for boxes of so many rows and columns of a tile in slabs, which goes to ``dst``."""
    made = [1] * len(dst.extent)
    made[row_axis(dst)], made[-1] = box
    return TensorMap(dst.buffer, tuple(made), slab_bytes(tile))


def row_axis(dst: Region) -> int:
    """The axis of a tensor along which rows of a tile follow each other."""
    return next(axis for axis, extent in enumerate(dst.extent) if int_value(extent) != 1)
