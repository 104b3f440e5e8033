"""Rings: tiles that are loaded together, in some stages.

Each stage has two barriers: *full*, at which the loaded bytes arrive, and *empty*, at which those who compute
arrive when they have read it. The producer waits for *empty* and loads; the others wait for *full* and read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.layouts.tiles import static_extents
from tilec.backends.cuda.analysis.products.units import ALIGNMENT
from tilec.ir.nodes import Alloc
from tilec.lowering.emission.memory import tile_bytes
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from tvm.ir import Var


@dataclass(frozen=True, eq=False)
class Ring:
    """Tiles that are loaded together: ``bytes`` of one stage, of which loads bring ``brought``, and
    ``stages`` of them. ``by_products``: nothing but products uses them; ``by_threads``: threads load them,
    not TMA; ``is_fenced``: those who wait make what cp.async brings visible to wgmma. ``over``: the tiles of
    another ring, where it lies once they are given back."""

    tiles: tuple[Var, ...]
    stages: int
    bytes: int
    brought: int
    by_products: bool
    by_threads: bool
    is_fenced: bool
    over: tuple[Var, ...] = ()

    @property
    def taken(self) -> int:
        """Bytes of all stages that no other ring has."""
        return 0 if self.over else self.stages * self.bytes

    @property
    def name(self) -> str:
        """The names of its tiles."""
        return "_".join(str(tile.name) for tile in self.tiles)


def versions(ring: Ring) -> dict[Var, Var]:
    """For each tile of a ring the tile of all of its stages."""
    return {
        tile: tirx.decl_buffer(
            (ring.stages, *(static_extents(tile) if ring.by_threads else _whole_units(tile))),
            str(tile.dtype),
            name=str(tile.name),
            scope="shared.dyn",
        )
        for tile in ring.tiles
    }


def _whole_units(tile: Var) -> tuple[int, ...]:
    """The extents of a tile, the first one that is more than 1 so long that stages begin where TMA may
    write."""
    extents = static_extents(tile)
    first = next((axis for axis, extent in enumerate(extents) if extent > 1), len(extents) - 1)
    inner = math.prod(extents[first + 1 :]) * element_bytes(str(tile.dtype))
    step = ALIGNMENT // math.gcd(ALIGNMENT, inner)
    return (*extents[:first], -(-extents[first] // step) * step, *extents[first + 1 :])


def gap(tile: Var) -> int:
    """Bytes between a version of a tile and the next one."""
    return math.prod(_whole_units(tile)) * element_bytes(str(tile.dtype)) - tile_bytes(Alloc(tile))
